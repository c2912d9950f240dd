"""A job's `runtime_env`, in Ray's own keys, before it is stored (R60, requirements §3, §4.1, §4.3).

What is not known here is refused: Ray hands unknown keys to plugins, and ignores a typing mistake without a word.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from kernel.errors import Problem, problem
from runtime_envs.check_dependencies import check_conda, check_pip, check_uv
from runtime_envs.check_shape import at, check_keys, check_texts, is_text, wrong_type
from runtime_envs.check_uri import UriPolicy, check_archive_uri

MAX_RUNTIME_ENV_BYTES = 64 * 1024
MAX_ENV_VARS = 100
MAX_ENV_VAR_BYTES = 32 * 1024
MIN_SETUP_TIMEOUT_S, MAX_SETUP_TIMEOUT_S = 60, 7200

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_RESERVED = ("PATH", "PYTHONPATH", "CUDA_VISIBLE_DEVICES")
_RESERVED_PREFIXES = ("MUSTER_", "PAI_", "FC_", "RAY_", "LD_")
_RAY_LIBRARIES = ("RAY_DEDUP_LOGS", "RAY_DATA_", "RAY_TRAIN_", "RAY_TUNE_", "RAY_SERVE_", "RAY_RLLIB_", "RAY_AIR_")

_DENIED = (
    *("py_executable", "worker_process_setup_hook", "container", "java_jars", "mpi"),
    *("nsight", "_nsight", "rocprof_sys", "_rocprof_sys"),
)
"""They put other programs in front of the job's own, or reach the host."""
_ONE_OF = ("pip", "uv", "conda")
IMAGE_URI = "image_uri"
_WITH_IMAGE = frozenset({IMAGE_URI, "env_vars", "config"})
"""Ray takes nothing else beside an image."""
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]{0,511}")
_WORKING_DIR_FORMATS = (".zip", ".tar.gz", ".tgz", ".tar.xz")

Check = Callable[[Any, str, UriPolicy], list[Problem]]


def check_runtime_env(env: object, uris: UriPolicy, *, from_ray_client: bool = False) -> list[Problem]:
    """Pointers start below the runtime_env. Ray's client brings a working directory and uploads of its own along."""
    if not isinstance(env, dict):
        return [wrong_type("", "object")]
    text = json.dumps(env, ensure_ascii=False)
    if not is_text(text):
        return [wrong_type("", "UTF-8")]
    if len(text.encode()) > MAX_RUNTIME_ENV_BYTES:
        return [problem("RUNTIME_ENV_TOO_LARGE", "", limit_bytes=MAX_RUNTIME_ENV_BYTES)]
    given = {key: value for key, value in env.items() if value is not None}
    checks = _checks(from_ray_client=from_ray_client)
    uris = replace(uris, uploads=from_ray_client)
    found = [one for key, value in given.items() for one in _check_key(key, value, checks, uris)]
    installers = [key for key in given if key in _ONE_OF]
    if len(installers) > 1:
        found.append(problem("RUNTIME_ENV_CONFLICT", at("", installers[1]), keys=installers))
    beside = [key for key in given if key in checks and key not in _WITH_IMAGE]
    if IMAGE_URI in given and beside:
        found.append(problem("RUNTIME_ENV_CONFLICT", at("", beside[0]), keys=[IMAGE_URI, *beside]))
    return found


def check_env_vars(value: Any, pointer: str = "") -> list[Problem]:
    if not isinstance(value, dict):
        return [wrong_type(pointer, "object")]
    if len(value) > MAX_ENV_VARS:
        return [problem("ENV_VARS_TOO_MANY", pointer, limit=MAX_ENV_VARS, count=len(value))]
    return [one for name, text in value.items() for one in _check_env_var(name, text, at(pointer, name))]


def _check_key(key: str, value: Any, checks: dict[str, Check], uris: UriPolicy) -> list[Problem]:
    pointer = at("", key)
    if key in _DENIED:
        return [problem("RUNTIME_ENV_KEY_DENIED", pointer, key=key)]
    if key not in checks:
        return [problem("RUNTIME_ENV_KEY_UNKNOWN", pointer, key=key)]
    return checks[key](value, pointer, uris)


def _checks(*, from_ray_client: bool) -> dict[str, Check]:
    checks: dict[str, Check] = {
        "env_vars": lambda value, pointer, _uris: check_env_vars(value, pointer),
        "pip": check_pip,
        "uv": check_uv,
        "conda": check_conda,
        "py_modules": _check_py_modules,
        "excludes": lambda value, pointer, _uris: check_texts(value, pointer),
        "config": _check_config,
        IMAGE_URI: _check_image,
        "working_dir": lambda _value, pointer, _uris: [problem("WORKING_DIR_NOT_ALLOWED", pointer)],
    }
    if from_ray_client:
        checks |= {"working_dir": _check_working_dir, "_ray_commit": _check_note, "_ray_release": _check_note}
    return checks


def _check_image(value: Any, pointer: str, uris: UriPolicy) -> list[Problem]:
    if not is_text(value):
        return [wrong_type(pointer, "str")]
    is_allowed = _IMAGE.fullmatch(value) and any(fnmatchcase(value, pattern) for pattern in uris.images)
    return [] if is_allowed else [problem("IMAGE_URI_NOT_ALLOWED", pointer, allowed=list(uris.images))]


def _check_note(value: Any, pointer: str, _uris: UriPolicy) -> list[Problem]:
    """What Ray's client adds about itself."""
    return [] if is_text(value) else [wrong_type(pointer, "str")]


def _check_working_dir(value: Any, pointer: str, uris: UriPolicy) -> list[Problem]:
    if not is_text(value):
        return [wrong_type(pointer, "str")]
    return check_archive_uri(value, uris, pointer, _WORKING_DIR_FORMATS)


def _check_py_modules(value: Any, pointer: str, uris: UriPolicy) -> list[Problem]:
    formats = (*_WORKING_DIR_FORMATS, ".whl")
    return check_texts(value, pointer, lambda uri, here: check_archive_uri(uri, uris, here, formats))


def _check_config(value: Any, pointer: str, _uris: UriPolicy) -> list[Problem]:
    if not isinstance(value, dict):
        return [wrong_type(pointer, "object")]
    found = check_keys(value, {"setup_timeout_seconds", "eager_install", "log_files"}, pointer)
    timeout_s = value.get("setup_timeout_seconds", MIN_SETUP_TIMEOUT_S)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int):
        found.append(wrong_type(at(pointer, "setup_timeout_seconds"), "int"))
    elif not MIN_SETUP_TIMEOUT_S <= timeout_s <= MAX_SETUP_TIMEOUT_S:
        bounds = {"minimum": MIN_SETUP_TIMEOUT_S, "maximum": MAX_SETUP_TIMEOUT_S}
        found.append(problem("SETUP_TIMEOUT_OUT_OF_RANGE", at(pointer, "setup_timeout_seconds"), **bounds))
    if not isinstance(value.get("eager_install", True), bool):
        found.append(wrong_type(at(pointer, "eager_install"), "bool"))
    if value.get("log_files"):  # the client always sends the empty list
        found.append(problem("RUNTIME_ENV_KEY_DENIED", at(pointer, "log_files"), key="log_files"))
    return found


def _check_env_var(name: str, text: Any, pointer: str) -> list[Problem]:
    if not _ENV_NAME.fullmatch(name):
        return [problem("ENV_VAR_NAME_INVALID", pointer, name=name[:255])]
    if name in _RESERVED or (name.startswith(_RESERVED_PREFIXES) and not name.startswith(_RAY_LIBRARIES)):
        return [problem("RESERVED_VARIABLE", pointer, name=name)]
    if not is_text(text) or "\0" in text:
        return [wrong_type(pointer, "str")]
    if len(text.encode()) > MAX_ENV_VAR_BYTES:
        return [problem("ENV_VAR_TOO_LONG", pointer, name=name, limit_bytes=MAX_ENV_VAR_BYTES)]
    return []
