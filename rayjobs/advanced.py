"""Advanced parameters of a job (requirements §3): an allow-list of what Muster really applies.

Nothing is ignored silently: a key is applied, or the answer says which form item does what the key was meant to do.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel.errors import Problem, pointer_to, problem
from rayjobs.advanced_denied import is_cluster_scope, protecting_item
from rayjobs.job_name import has_control
from rayjobs.model.job import RunMode

MAX_KEYS = 50
MAX_VALUE_LENGTH = 4096

_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_RESOURCE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_RAY_OWN_RESOURCES = frozenset({"cpu", "gpu", "memory", "object_store_memory"})
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"([A-Za-z0-9.-]{{1,253}}/)?{_LABEL}")
_SELECTOR = re.compile(rf"!?({_LABEL}|in\({_LABEL}(, ?{_LABEL})*\))")
_CONFIG = "runtime_env.config."
_SHORT = {"eager_install": f"{_CONFIG}eager_install"}


class _Refused(ValueError):
    """A value its key cannot take; carries the code and params of the problem."""

    def __init__(self, code: str, **params: Any) -> None:
        super().__init__(code)
        self.code = code
        self.params = params


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


def check_advanced(parameters: Mapping[str, str], run_mode: RunMode) -> list[Problem]:
    if len(parameters) > MAX_KEYS:
        return [problem("TOO_MANY_ADVANCED_PARAMS", "/advanced_parameters", count=len(parameters), maximum=MAX_KEYS)]
    found = [_check_one(key, value, run_mode) for key, value in parameters.items()]
    found += [
        problem("ADVANCED_PARAM_TWICE", _pointer(short), key=short, other=long)
        for short, long in _SHORT.items()
        if short in parameters and long in parameters
    ]
    return [one for one in found if one]


def submission_options(parameters: Mapping[str, str]) -> SubmissionOptions:
    """For parameters that passed `check_advanced`."""
    values = {_SHORT.get(key, key): _READERS[_SHORT.get(key, key)](value) for key, value in parameters.items()}
    return SubmissionOptions(
        fields={key: value for key, value in values.items() if key.startswith("entrypoint_")},
        config={key.removeprefix(_CONFIG): value for key, value in values.items() if key.startswith(_CONFIG)},
        env_vars={_ENV_VARS[key]: value for key, value in values.items() if key in _ENV_VARS},
    )


def _check_one(key: str, value: str, run_mode: RunMode) -> Problem | None:
    pointer = _pointer(key)
    if not _KEY.fullmatch(key):
        return problem("ADVANCED_PARAM_KEY_INVALID", pointer, key=key)
    if refusal := _refuse_key(key, run_mode):
        return refusal
    if len(value) > MAX_VALUE_LENGTH:
        return problem("ADVANCED_PARAM_TOO_LONG", pointer, key=key, maximum=MAX_VALUE_LENGTH)
    if has_control(value):
        return problem("ADVANCED_PARAM_CONTROL_CHARACTER", pointer, key=key)
    try:
        _READERS[_SHORT.get(key, key)](value)
    except _Refused as refused:
        return problem(refused.code, pointer, key=key, **refused.params)
    return None


def _refuse_key(key: str, run_mode: RunMode) -> Problem | None:
    pointer = _pointer(key)
    if _SHORT.get(key, key) in _READERS:
        return None
    if item := protecting_item(key, run_mode):
        return problem("ADVANCED_PARAM_PROTECTED", pointer, key=key, form_item=item)
    if is_cluster_scope(key) and run_mode is not RunMode.ON_DEMAND:
        return problem("ADVANCED_PARAM_CLUSTER_SCOPE", pointer, key=key)
    return problem("ADVANCED_PARAM_UNKNOWN", pointer, key=key, allowed=sorted(_READERS))


def _pointer(key: str) -> str:
    return pointer_to("advanced_parameters", key)


def _amount(maximum: int, *, whole_above_one: bool = False) -> Callable[[str], float]:
    """Ray counts in steps of 0.0001, and accelerators beyond the first only whole."""

    def read(text: str) -> float:
        value = float(text) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,4})?", text) else -1.0
        if not 0 <= value <= maximum:
            raise _Refused("ADVANCED_PARAM_NOT_AMOUNT", maximum=maximum)
        if whole_above_one and value > 1 and not value.is_integer():
            raise _Refused("ADVANCED_PARAM_NOT_WHOLE")
        return value

    return read


def _integer(minimum: int, maximum: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text) if re.fullmatch(r"[0-9]{1,18}", text) else -1
        if not minimum <= value <= maximum:
            raise _Refused("ADVANCED_PARAM_NOT_INTEGER", minimum=minimum, maximum=maximum)
        return value

    return read


def _choice(**meanings: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text.lower() not in meanings:
            raise _Refused("ADVANCED_PARAM_NOT_A_CHOICE", allowed=list(meanings))
        return meanings[text.lower()]

    return read


def _object(code: str, is_fine: Callable[[str, object], bool]) -> Callable[[str], dict[str, Any]]:
    def read(text: str) -> dict[str, Any]:
        try:
            members = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _Refused(code) from error
        if not isinstance(members, dict) or not all(is_fine(name, value) for name, value in members.items()):
            raise _Refused(code)
        return members

    return read


def _is_custom(name: str, amount: object) -> bool:
    """Ray's own resources have parameters of their own."""
    if not _RESOURCE_NAME.fullmatch(name) or name.lower() in _RAY_OWN_RESOURCES:
        return False
    if not isinstance(amount, int | float) or isinstance(amount, bool):
        return False
    return 0 < amount <= 1e6 and round(amount, 4) == amount


def _is_selector(label: str, condition: object) -> bool:
    """A value, or Ray's `!x`, `in(x,y)`, `!in(x,y)`; it answers the submission with 500 for anything else."""
    fine = isinstance(condition, str) and (not condition or _SELECTOR.fullmatch(condition))
    return bool(fine) and _LABEL_KEY.fullmatch(label) is not None


_READERS: dict[str, Callable[[str], Any]] = {
    "entrypoint_num_cpus": _amount(4096),
    "entrypoint_num_gpus": _amount(1024, whole_above_one=True),
    "entrypoint_memory": _integer(0, 2**50),
    "entrypoint_resources": _object("ADVANCED_PARAM_BAD_RESOURCES", _is_custom),
    "entrypoint_label_selector": _object("ADVANCED_PARAM_BAD_LABELS", _is_selector),
    f"{_CONFIG}setup_timeout_seconds": _integer(60, 7200),
    f"{_CONFIG}eager_install": _choice(true=True, false=False),
    "dedup_logs": _choice(true="1", false="0"),
    "log_level": _choice(debug="debug", info="info", warning="warning", error="error", critical="critical"),
}
"""How each allowed key's text becomes Ray's value."""

_ENV_VARS = {"dedup_logs": "RAY_DEDUP_LOGS", "log_level": "RAY_LOGGER_LEVEL"}
"""Read by the driver's Ray when it is imported [measured: RAY_LOGGER_LEVEL=error silences the driver's INFO lines]."""
