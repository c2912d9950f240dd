"""The members of a group at one instant, and the first hard filter of policy.md §2 that each of them fails.

What does not depend on the run is looked up once (`survey`), what depends only on the kind of run once for each kind
(`refusal_of`): a group has up to 50 members, and thousands of runs may wait for it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cluster_groups.decide.windows import window_state
from cluster_groups.model.cluster import ClusterState
from cluster_groups.model.demand import ClusterView
from cluster_groups.model.group import (
    MAX_TIER,
    ClusterGroup,
    Failback,
    Member,
    OnWindowEnd,
    Policy,
    WindowMode,
    WindowState,
)
from cluster_groups.model.health import HealthStatus
from kernel.clock import instant
from kernel.reasons import Owner, Reason

ALL_TIERS = MAX_TIER + 1
"""And one more, the last, that closed windows make."""
NEVER = datetime.max.replace(tzinfo=UTC)

Match = Callable[[ClusterView], Reason | None]
"""`match_cluster` for one demand."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """One member now, whoever asks."""

    member: Member
    view: ClusterView | None
    window: WindowState
    tier: int
    """With one more while it is closed, where closed only means later."""
    returns_at: datetime | None = None
    """It was ill, and its tier is not to be used again before that; NEVER: before a person says so."""

    @property
    def name(self) -> str:
        return self.member.cluster


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What a kind of runs asks of the members: all that tells equal runs from others."""

    match: Match
    accelerators: tuple[str, ...] = ()
    packages: Collection[str] | None = None
    max_runtime_s: int | None = None
    tried: frozenset[str] = frozenset()
    """Clusters on which an attempt of it went wrong, not by its own fault."""
    opened: int = 0
    """How many further tiers are open to it, as it has waited for room long enough."""


def survey(group: ClusterGroup, views: Mapping[str, ClusterView], now: datetime) -> tuple[Standing, ...]:
    """In the order of the group; `views` by name."""
    standings = (_standing(group, one, views.get(one.cluster), now) for one in group.members)
    return tuple(sorted(standings, key=lambda one: (one.member.order, one.name)))


def refusal_of(standing: Standing, policy: Policy, wish: Wish, now: datetime) -> Reason | None:
    """Of the filters that stay as they are while a round of admission goes on: all but the last two."""
    view, known = standing.view, {"cluster": standing.name}
    if not standing.member.enabled:
        return Reason(code="DISABLED", owner=Owner.USER, params=known)
    if view is None or view.on_demand:
        return Reason(code="CLUSTER_MISSING", owner=Owner.USER, params=known)
    if wish.packages is not None and view.resource_package not in {None, *wish.packages}:
        denied = {**known, "resource_package": view.resource_package}
        return Reason(code="ACCESS_DENIED", owner=Owner.USER, params=denied)
    if view.state is not ClusterState.RUNNING:
        return Reason(code="CLUSTER_NOT_RUNNING", owner=Owner.USER, params={**known, "state": str(view.state)})
    if view.health is not HealthStatus.HEALTHY:
        failure = view.health_failure.code if view.health_failure else None
        return Reason(code=f"HEALTH_{view.health}", params={**known, "failure": failure})
    if standing.member.cordoned or view.cordoned:
        return Reason(code="CORDONED", owner=Owner.USER, params=known)
    return wish.match(view) or _closed(standing, policy, wish, now)


def refusal_in_round(standing: Standing, wish: Wish, running: int) -> Reason | None:
    """The last two: `running` is how many live runs the member has through this group."""
    limit = standing.member.max_running
    if limit is not None and running >= limit:
        params = {"cluster": standing.name, "running": running, "limit": limit}
        return Reason(code="MEMBER_LIMIT", owner=Owner.QUOTA, params=params)
    if standing.name in wish.tried:
        return Reason(code="ALREADY_TRIED", params={"cluster": standing.name})
    return None


def opened_tiers(policy: Policy, no_room_since: datetime | None, now: datetime) -> int:
    """One more each time a run has waited `spill_after_s` for room; all at once where nobody is to wait at all."""
    if policy.spill_after_s == 0:
        return ALL_TIERS
    if no_room_since is None:
        return 0
    return min(ALL_TIERS, int((now - no_room_since).total_seconds() // policy.spill_after_s))


def window_ends_at(policy: Policy, window: WindowState) -> datetime | None:
    """When what is sent to a member now is to be stopped there.

    What comes while its window is closed, where that only means later, does not go by its windows.
    """
    stops = policy.on_window_end is OnWindowEnd.STOP and window.is_open
    return window.until if stops else None


def _standing(group: ClusterGroup, member: Member, view: ClusterView | None, now: datetime) -> Standing:
    window = window_state(member.windows, group.timezone, now)
    later = group.policy.window_mode is WindowMode.PREFER and not window.is_open
    return Standing(
        member=member,
        view=view,
        window=window,
        tier=member.tier + later,
        returns_at=_returns_at(group, view, now),
    )


def _returns_at(group: ClusterGroup, view: ClusterView | None, now: datetime) -> datetime | None:
    if view is None or view.recovered_at is None:
        return None
    if group.policy.failback is Failback.MANUAL:
        revised_at = group.revised_at or group.created_at
        return NEVER if view.recovered_at > revised_at else None
    returns_at = view.recovered_at + timedelta(seconds=group.policy.failback_stable_s)
    return returns_at if returns_at > now else None


def _closed(standing: Standing, policy: Policy, wish: Wish, now: datetime) -> Reason | None:
    window, name = standing.window, standing.name
    if not window.is_open:
        if policy.window_mode is WindowMode.PREFER:
            return None
        until = None if window.until is None else instant(window.until)
        return Reason(code="WINDOW_CLOSED", owner=Owner.USER, params={"cluster": name, "until": until})
    if not policy.fit_in_window or wish.max_runtime_s is None or window.until is None:
        return None
    if window.until >= now + timedelta(seconds=wish.max_runtime_s):
        return None
    params = {"cluster": name, "until": instant(window.until), "max_runtime_s": wish.max_runtime_s}
    return Reason(code="WINDOW_TOO_SHORT", owner=Owner.USER, params=params)
