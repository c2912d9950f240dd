"""Pure: the few headers that pass from the browser to the dashboard and back, and requests that no page may make.

By lists of what passes, so that tokens, cookies, what tells of the browser and what belongs to one connection stay.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from kernel.errors import Denied

_TO_RAY = ("accept", "accept-language", "content-type", "content-length")
_FROM_RAY = ("content-type", "content-disposition")
_AS_BROWSER = "Mozilla/5.0 (compatible; Muster)"
"""To what looks like a browser Ray masks environment variables and refuses all changes."""
_AS_PROGRAM = "Muster"

ON_EVERY_ANSWER: Mapping[str, str] = {
    # The page comes from the cluster, and so perhaps from somebody's job: it stays within what the dashboard needs.
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
        "object-src 'none'; frame-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",  # another cluster may come to have this name
}


def refuse_foreign_pages(headers: Mapping[str, str]) -> None:
    """`same-site` too: it is said of every other port of this host, where SameSite lets the cookie through."""
    site = headers.get("sec-fetch-site", "none")
    origin = headers.get("origin")
    if site not in {"none", "same-origin"} or (origin is not None and urlsplit(origin).netloc != headers.get("host")):
        raise Denied("DASHBOARD_FOREIGN_PAGE")


def to_ray(headers: Mapping[str, str], token: str | None, *, as_browser: bool) -> dict[str, str]:
    passed = {name: headers[name] for name in _TO_RAY if name in headers}
    own = {"user-agent": _AS_BROWSER if as_browser else _AS_PROGRAM, "accept-encoding": "identity"}
    return passed | own | ({"authorization": f"Bearer {token}"} if token else {})


def from_ray(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in _FROM_RAY if name in headers} | dict(ON_EVERY_ANSWER)
