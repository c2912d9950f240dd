"""The `pip`, `uv` and `conda` of a runtime_env: their shape, and every line in them."""

import re
from typing import Any

from kernel.errors import Problem
from runtime_envs.check_requirements import (
    check_conda_channel,
    check_conda_dependency,
    check_options,
    check_requirement,
    refused,
)
from runtime_envs.check_shape import at, check_keys, check_texts, is_text, wrong_type
from runtime_envs.check_uri import UriPolicy

_CONDA_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def check_pip(value: Any, pointer: str, uris: UriPolicy) -> list[Problem]:
    return _check_installer("pip", value, pointer, uris)


def check_uv(value: Any, pointer: str, uris: UriPolicy) -> list[Problem]:
    return _check_installer("uv", value, pointer, uris)


def check_conda(value: Any, pointer: str, uris: UriPolicy) -> list[Problem]:
    """The name of an environment on the nodes, or the content of an environment file."""
    if isinstance(value, str):
        is_name = _CONDA_NAME.fullmatch(value) and not value.endswith((".yml", ".yaml"))
        return [] if is_name else refused(value, "local_path", pointer)
    if not isinstance(value, dict):
        return [wrong_type(pointer, "str | object")]
    found = check_keys(value, {"name", "channels", "dependencies"}, pointer)
    if not is_text(value.get("name", "")):
        found.append(wrong_type(at(pointer, "name"), "str"))
    channels = check_texts(
        value.get("channels", []), at(pointer, "channels"), lambda text, here: check_conda_channel(text, uris, here)
    )
    return [*found, *channels, *_check_conda_dependencies(value.get("dependencies", []), pointer, uris)]


def _check_installer(name: str, value: Any, pointer: str, uris: UriPolicy) -> list[Problem]:
    spec = {"packages": value} if isinstance(value, list) else value
    if not isinstance(spec, dict):
        return [wrong_type(pointer, "list[str] | object")]  # a path to a file on the node, for one
    options = "pip_install_options" if name == "pip" else "uv_pip_install_options"
    check, version = f"{name}_check", f"{name}_version"
    found = check_keys(spec, {"packages", check, version, options}, pointer)
    packages_at = pointer if isinstance(value, list) else at(pointer, "packages")
    found += check_texts(spec.get("packages"), packages_at, lambda text, here: check_requirement(text, uris, here))
    if not isinstance(spec.get(check, False), bool):
        found.append(wrong_type(at(pointer, check), "bool"))
    wanted = spec.get(version, "")
    if is_text(wanted):
        found += check_requirement(name + wanted, uris, at(pointer, version))
    else:
        found.append(wrong_type(at(pointer, version), "str"))
    return found + _check_install_options(spec.get(options, []), at(pointer, options), uris)


def _check_install_options(value: Any, pointer: str, uris: UriPolicy) -> list[Problem]:
    found = check_texts(value, pointer)
    return found or check_options([(word, at(pointer, index)) for index, word in enumerate(value)], uris)


def _check_conda_dependencies(value: Any, pointer: str, uris: UriPolicy) -> list[Problem]:
    here = at(pointer, "dependencies")
    if not isinstance(value, list):
        return [wrong_type(here, "list")]
    found = []
    for index, one in enumerate(value):
        if is_text(one):
            found += check_conda_dependency(one, uris, at(here, index))
        elif isinstance(one, dict) and set(one) == {"pip"}:
            found += check_texts(
                one["pip"], at(at(here, index), "pip"), lambda text, line_at: check_requirement(text, uris, line_at)
            )
        else:
            found.append(wrong_type(at(here, index), 'str | {"pip": list[str]}'))
    return found
