"""Which addresses a job may make its nodes fetch from (requirements §4.3).

Muster does not fetch these itself, so scheme and host are all that can be held.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import SplitResult, urlsplit

from kernel.errors import Problem, problem
from runtime_envs.addresses import AllowedHosts, may_fetch_from

_UPLOAD = re.compile(r"gcs://[A-Za-z0-9_][A-Za-z0-9._+!-]*")
_UNSEEN = re.compile(r"[\s\x00-\x1f\x7f\\]")


class UriRule(StrEnum):
    """What is wrong with an address."""

    MALFORMED = "malformed"
    SCHEME = "scheme"
    HOST = "host"
    CREDENTIALS = "credentials"
    FORMAT = "format"
    """Not an archive Ray can unpack."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UriPolicy:
    """`hosts` names hosts, buckets and `*.domains`; None allows all but addresses of the node itself."""

    schemes: frozenset[str] = frozenset({"https", "s3", "gs", "azure"})
    hosts: frozenset[str] | None = None
    images: tuple[str, ...] = ()
    """Patterns of the container images a job may name."""
    uploads: bool = False
    """`gcs://NAME` is what Ray's client has uploaded before."""
    allowed: AllowedHosts = field(default_factory=AllowedHosts)
    """Addresses of the node itself that are meant all the same."""


def check_uri(uri: str, policy: UriPolicy, pointer: str) -> list[Problem]:
    rule = _broken_rule(uri, policy)
    return [_not_allowed(uri, rule, pointer)] if rule else []


def check_archive_uri(uri: str, policy: UriPolicy, pointer: str, formats: tuple[str, ...]) -> list[Problem]:
    """`formats`: the file name endings Ray unpacks here."""
    is_upload = policy.uploads and _UPLOAD.fullmatch(uri)
    found = [] if is_upload else check_uri(uri, policy, pointer)
    path = re.split(r"[?#]", uri, maxsplit=1)[0]
    return found or ([] if path.endswith(formats) else [_not_allowed(uri, UriRule.FORMAT, pointer)])


def without_secrets(uri: str) -> str:
    """Fit for an answer and a log: without user, password and query, and not too long."""
    return re.sub(r"//[^/\s]*@", "//", re.sub(r"[?#]\S*", "", uri))[:200]


def _broken_rule(uri: str, policy: UriPolicy) -> UriRule | None:
    parts = _split(uri)
    if parts is None:
        return UriRule.MALFORMED
    if parts.scheme not in policy.schemes:
        return UriRule.SCHEME
    if "@" in parts.netloc:
        return UriRule.CREDENTIALS
    if not parts.hostname:
        return UriRule.MALFORMED
    return None if _is_allowed_host(parts.hostname, policy) else UriRule.HOST


def _not_allowed(uri: str, rule: UriRule, pointer: str) -> Problem:
    return problem("URI_NOT_ALLOWED", pointer, uri=without_secrets(uri), rule=rule.value)


def _split(uri: str) -> SplitResult | None:
    if _UNSEEN.search(uri):
        return None
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _is_allowed_host(host: str, policy: UriPolicy) -> bool:
    if policy.hosts is not None:
        domains = {f"*.{host.split('.', depth)[-1]}" for depth in range(1, host.count(".") + 1)}
        return not policy.hosts.isdisjoint({host, *domains})
    return may_fetch_from(host, policy.allowed)
