"""How an attempt is put to Ray: the runner's package, the entrypoint that starts it, the runtime_env with both."""

import base64
import hashlib
import io
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from rayjobs.model.job import JobSpec, TaskGroup
from rayjobs.model.run import submission_id
from rayjobs.runner.spec import (
    EXIT_GUARD_LOST,
    EXIT_LEASE_LOST,
    EXIT_MAX_RUNTIME,
    EXIT_RUNNER_FAILED,
    MAX_SPEC_BYTES,
    OWN_ENV_VARS,
    GroupSpec,
    LeaseTerms,
    RunnerSpec,
    SpecTooLarge,
    pack,
)
from runtime_envs.check import IMAGE_URI

__all__ = [
    "EXIT_GUARD_LOST",
    "EXIT_LEASE_LOST",
    "EXIT_MAX_RUNTIME",
    "EXIT_RUNNER_FAILED",
    "MAX_SPEC_BYTES",
    "LeaseTerms",
    "RunnerPackage",
    "RunnerSpec",
    "SpecTooLarge",
    "attempt_runtime_env",
    "entrypoint",
    "pack",
    "runner_package",
    "runner_spec",
]

_STOP_SLACK_S = 10
"""Ray kills the runner this long after the grace; by then its guard has ended everybody."""

# Isolated and without site-packages: no json.py or sitecustomize of the user's gets before the standard library.
# One line, because Ray writes the entrypoint into the driver's log, and Muster takes that one line out again.
_BOOTSTRAP = (
    "import os, sys; "
    'found = [p for p in os.environ.get("PYTHONPATH", "").split(":") if p.endswith("/{folder}")] '
    'or (print("muster: this node has not got the runner package {folder}", file=sys.stderr), sys.exit({failed})); '
    "sys.path.append(found[0]); "
    "from muster_runner.main import main; "
    "main(found[0])"
)
_CARRIED = (
    "import base64, io, sys, tempfile, zipfile, zlib; "
    'home = tempfile.mkdtemp(prefix="muster-") + "/{folder}"; '
    'zipfile.ZipFile(io.BytesIO(zlib.decompress(base64.b64decode("{data}")))).extractall(home); '
    "sys.path.append(home); "
    "from muster_runner.main import main; "
    "main(home)"
)
"""Into a container: Ray puts nothing there beside the image."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerPackage:
    name: str
    uri: str
    sha256: str
    data: bytes


@cache
def runner_package() -> RunnerPackage:
    """The runner as a py_modules ZIP, the same bytes for the same sources; Ray unpacks it to a folder so named."""
    packed = io.BytesIO()
    sources = resources.files("rayjobs.runner")
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(entry.name for entry in sources.iterdir() if entry.name.endswith(".py")):
            member = zipfile.ZipInfo(f"muster_runner/{name}", (1980, 1, 1, 0, 0, 0))
            member.external_attr = 0o644 << 16
            archive.writestr(member, sources.joinpath(name).read_bytes())
    data = packed.getvalue()
    sha256 = hashlib.sha256(data).hexdigest()
    name = f"muster_runner_{sha256[:16]}.zip"
    return RunnerPackage(name=name, uri=f"gcs://{name}", sha256=sha256, data=data)


def runner_spec(spec: JobSpec, run_id: str, epoch: int) -> RunnerSpec:
    """What the runner of this attempt is told. Thresholds count only where there are several tasks (R32)."""
    counts = sum(group.count for group in spec.task_groups) > 1
    return RunnerSpec(
        submission_id=submission_id(run_id, epoch),
        run_id=run_id,
        attempt=epoch,
        command=spec.entrypoint,
        groups=tuple(_group_spec(group, counts=counts) for group in spec.task_groups),
        placement_strategy=str(spec.placement_strategy),
        gang_timeout_s=spec.gang_timeout_s,
        stop_grace_s=spec.stop_grace_s,
        max_runtime_s=spec.max_runtime_s,
    )


def entrypoint(spec: RunnerSpec, package: RunnerPackage, *, in_image: bool = False) -> str:
    """The command Ray gives to `/bin/sh -c`. Raises SpecTooLarge."""
    folder = package.name.removesuffix(".zip")
    bootstrap = _BOOTSTRAP.format(folder=folder, failed=EXIT_RUNNER_FAILED)
    if in_image:
        bootstrap = _CARRIED.format(folder=folder, data=base64.b64encode(zlib.compress(package.data, 9)).decode())
    return f"exec python3 -I -S -c '{bootstrap}' {pack(spec)}"


def attempt_runtime_env(user_env: Mapping[str, Any], spec: RunnerSpec, package: RunnerPackage) -> dict[str, Any]:
    """The user's runtime_env with what Muster adds; the runner takes that out again before the user's code."""
    (stop_wait,) = OWN_ENV_VARS
    wait_s = math.ceil(spec.stop_grace_s) + _STOP_SLACK_S
    env = {**user_env, "env_vars": {**user_env.get("env_vars", {}), stop_wait: str(wait_s)}}
    return env if IMAGE_URI in user_env else {**env, "py_modules": [*user_env.get("py_modules", ()), package.uri]}


def _group_spec(group: TaskGroup, *, counts: bool) -> GroupSpec:
    return GroupSpec(
        name=group.name,
        tasks=group.count,
        cpu=group.cpu,
        memory_bytes=int(group.memory_gib * 2**30),
        gpu=group.gpu,
        gpu_type=group.gpu_type,
        command=group.entrypoint,
        min_succeeded=group.min_succeeded if counts else None,
        min_failed=group.min_failed if counts else None,
    )
