"""Cluster groups and the revisions of their policies (api.md §6, policy.md)."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.base import In, Lax, Resource, WarningOut
from cluster_groups.model.group import (
    EVERY_DAY,
    ClusterGroup,
    Effect,
    Failback,
    GpuMatch,
    Member,
    OnClusterLoss,
    OnWindowEnd,
    PolicyDraft,
    PolicyRevision,
    Preset,
    Rank,
    Window,
    WindowMode,
)
from cluster_groups.policy_changes import Change
from cluster_groups.service.groups import GroupChanges


def _any_of(kind: type[StrEnum]) -> Any:
    """Whatever text; which are known, the policy is checked for, with a code of its own."""
    return Field(json_schema_extra={"enum": [*kind, None]})


class DocumentedIn(In):
    """What is said of a field goes to people who edit the policy as text."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class WindowIn(DocumentedIn):
    days: list[int] = list(EVERY_DAY)
    """Days on which it starts: 1 is Monday, 7 is Sunday."""
    start: str
    """HH:MM, wall time."""
    end: str
    """HH:MM, not included. Before start: it goes on past midnight. The same as start: 24 hours."""
    timezone: str | None = None
    """The group's unless given."""
    date_from: Lax[date] | None = None
    """First day on which it may start."""
    date_to: Lax[date] | None = None
    """Last day on which it may start."""
    effect: Lax[Effect] = Effect.OPEN
    """closed: an exception, which beats any open window. With none but closed ones the rest of the time is open."""

    def window(self) -> Window:
        return Window(**{**dict(self), "days": tuple(self.days)})


class MemberIn(DocumentedIn):
    cluster: str
    """Name of the cluster."""
    enabled: bool = True
    """false: as if it were not there."""
    cordoned: bool = False
    """true: no new runs through this group."""
    order: int | None = None
    """Position in the list unless given."""
    weight: int = 100
    """0 to 1000, for rank weighted; 0: only if there is no other."""
    tier: int = 0
    """0 to 9: 0 is the primary, 1 and more stand by."""
    windows: list[WindowIn] = []
    """When it takes runs; always if there are none."""
    max_running: int | None = None
    """Most runs that it has through this group at once."""

    def member(self, index: int) -> Member:
        windows = tuple(window.window() for window in self.windows)
        order = index if self.order is None else self.order
        return Member(**{**dict(self), "order": order, "windows": windows})


class PolicyIn(DocumentedIn):
    """What is left out is as the preset says, else as it is by default."""

    preset: Annotated[str | None, _any_of(Preset)] = None
    """What the group is for. It only fills the fields below that are not given."""
    rank: Annotated[str | None, _any_of(Rank)] = None
    """Who is first inside a tier."""
    window_mode: Annotated[str | None, _any_of(WindowMode)] = None
    """A member whose windows are closed: restrict leaves it out, prefer makes it one tier later."""
    spill_after_s: int | None = None
    """How long a run waits for room in the best tier before the next one opens to it; 0: at once."""
    gpu_match: Annotated[str | None, _any_of(GpuMatch)] = None
    """ordered: the order of the job's accelerator types comes before that of the members."""
    failback: Annotated[str | None, _any_of(Failback)] = None
    """A tier that was left for ill health: auto uses it again after failback_stable_s, manual after the next revision.

    To make one of the same content, save it with a comment.
    """
    failback_stable_s: int | None = None
    """How long such a tier must be healthy."""
    on_cluster_loss: Annotated[str | None, _any_of(OnClusterLoss)] = None
    """redispatch: another attempt elsewhere, if the job's retry.on has lost and attempts are left."""
    lost_timeout_s: int | None = None
    """How long a run that was sent waits for a cluster that vanished."""
    on_window_end: Annotated[str | None, _any_of(OnWindowEnd)] = None
    """What becomes of runs when the windows of their member close."""
    max_wait_s: int | None = None
    """How long a run may wait at all, unless its job says."""
    fit_in_window: bool | None = None
    """true: leave out members that close before the job's declared max runtime is over."""

    def given(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


class DraftIn(DocumentedIn):
    timezone: str = "UTC"
    """IANA name, like Asia/Shanghai; of all windows that name none."""
    members: list[MemberIn] = []
    """At most 50."""
    policy: PolicyIn = PolicyIn()
    """How a member is picked."""

    def draft(self) -> PolicyDraft:
        return PolicyDraft(timezone=self.timezone, members=_members(self.members), policy=self.policy.given())


class PolicyPut(DraftIn):
    comment: str = ""
    """Why, for the list of revisions."""

    def draft(self) -> PolicyDraft:
        return replace(DraftIn.draft(self), comment=self.comment)


class Restore(In):
    comment: str = ""


class GroupCreate(DraftIn):
    name: str
    description: str = ""


class GroupEdit(DraftIn):
    description: str = ""

    def changes(self) -> GroupChanges:
        sent = {name: getattr(self, name) for name in self.model_fields_set}
        if "members" in sent:
            sent["members"] = _members(self.members)
        if "policy" in sent:
            sent["policy"] = self.policy.given()
        return GroupChanges(**sent)


class WindowOut(BaseModel):
    days: list[int]
    start: str
    end: str
    timezone: str | None
    date_from: date | None
    date_to: date | None
    effect: str


class MemberOut(BaseModel):
    cluster: str
    enabled: bool
    cordoned: bool
    order: int
    weight: int
    tier: int
    windows: list[WindowOut]
    max_running: int | None


class PolicyOut(BaseModel):
    preset: str
    rank: str
    window_mode: str
    spill_after_s: int
    gpu_match: str
    failback: str
    failback_stable_s: int
    on_cluster_loss: str
    lost_timeout_s: int
    on_window_end: str
    max_wait_s: int | None
    fit_in_window: bool


class GroupOut(Resource):
    name: str
    description: str
    revision: int
    timezone: str
    members: list[MemberOut]
    policy: PolicyOut
    warnings: list[WarningOut] = []

    @classmethod
    def of(cls, group: ClusterGroup) -> "GroupOut":
        return cls.model_validate(asdict(group))


class ChangeOut(BaseModel):
    """`field` is a path like `policy.rank` or `members.c1.weight`; a member that comes or goes is one change."""

    field: str
    before: Any
    after: Any


class PolicyRevisionOut(BaseModel):
    revision: int
    created_at: datetime
    created_by: str
    comment: str
    timezone: str
    members: list[MemberOut]
    policy: PolicyOut
    changes: list[ChangeOut]
    """Since the revision before."""
    warnings: list[WarningOut] = []

    @classmethod
    def of(cls, revision: PolicyRevision, changes: Sequence[Change]) -> "PolicyRevisionOut":
        return cls.model_validate({**asdict(revision), "changes": [asdict(one) for one in changes]})


def _members(members: list[MemberIn]) -> tuple[Member, ...]:
    return tuple(member.member(index) for index, member in enumerate(members))
