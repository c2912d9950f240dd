"""What an edit of a policy changed, field by field: for its history, the audit and the timeline."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from cluster_groups.model.group import PolicyRevision


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """`field` is a path like `policy.rank` or `members.c1.weight`; a member that comes or goes is one change."""

    field: str
    before: Any
    after: Any


def policy_changes(before: PolicyRevision, after: PolicyRevision) -> tuple[Change, ...]:
    """In JSON's own types."""
    return tuple(_changes("", _content(before), _content(after)))


def _content(revision: PolicyRevision) -> dict[str, Any]:
    """Members by name: where one stands in the list says nothing, its order does."""
    content: dict[str, Any] = to_jsonable_python(
        {
            "timezone": revision.timezone,
            "policy": asdict(revision.policy),
            "members": {member.cluster: asdict(member) for member in revision.members},
        }
    )
    return content


def _changes(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changes(f"{path}{name}.", old, new)
        else:
            yield Change(field=f"{path}{name}", before=old, after=new)
