"""Browsers are kept out as Ray's dashboard does: a page must not submit jobs with what its visitor may do."""

from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers

from api.ray_endpoint.errors import RayRefusal

_TELLTALE = (
    "origin",
    "referer",
    "sec-fetch-mode",
    "sec-fetch-dest",
    "sec-fetch-site",
    "sec-fetch-user",
    "access-control-request-method",
    "access-control-request-headers",
)
_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})


def is_browser(headers: Headers) -> bool:
    return headers.get("user-agent", "").startswith("Mozilla") or any(name in headers for name in _TELLTALE)


def refuse_browsers(method: str, headers: Headers) -> None:
    if method not in _HARMLESS and is_browser(headers):
        raise RayRefusal(405, f"'{method}' method not allowed for browser traffic.")


def without_secrets(runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """What a browser is shown of a runtime_env."""
    shown = dict(runtime_env)
    if "env_vars" in shown:
        shown["env_vars"] = dict.fromkeys(shown["env_vars"], "<redacted>")
    return shown
