"""Advanced parameters of a job: what its submission makes of those of its scope."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rayjobs.model.job import RunMode
from runtime_envs.advanced.catalogue import Scope
from runtime_envs.advanced.check import OF_CLUSTERS, read
from runtime_envs.advanced.protected import Place

PLACES: Mapping[RunMode, Place] = {
    RunMode.ON_DEMAND: Place.ON_DEMAND,
    RunMode.CLUSTER: Place.SHARED,
    RunMode.CLUSTER_GROUP: Place.SHARED,
}

_CONFIG = "runtime_env.config."
_ENV_VARS = {"dedup_logs": "RAY_DEDUP_LOGS", "log_level": "RAY_LOGGER_LEVEL"}
"""Read by the driver's Ray when it is imported [measured: RAY_LOGGER_LEVEL=error silences the driver's INFO lines]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmissionOptions:
    """Advanced parameters as Ray takes them: fields of the submission, and two parts of its runtime_env."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    env_vars: Mapping[str, str] = field(default_factory=dict)

    def runtime_env(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The job's own runtime_env with these on top."""
        merged = dict(own)
        for name, added in (("config", self.config), ("env_vars", self.env_vars)):
            if added:
                merged[name] = {**(merged.get(name) or {}), **added}
        return merged


def submission_options(parameters: Mapping[str, str]) -> SubmissionOptions:
    """For parameters that passed the check."""
    values = read(parameters, Scope.JOB)
    return SubmissionOptions(
        fields={key: value for key, value in values.items() if key.startswith("entrypoint_")},
        config={key.removeprefix(_CONFIG): value for key, value in values.items() if key.startswith(_CONFIG)},
        env_vars={_ENV_VARS[key]: value for key, value in values.items() if key in _ENV_VARS},
    )


def cluster_parameters(parameters: Mapping[str, str]) -> dict[str, str]:
    """Those of the cluster that is made for a run."""
    known = read(parameters, *OF_CLUSTERS)
    return {key: text for key, text in parameters.items() if key in known}
