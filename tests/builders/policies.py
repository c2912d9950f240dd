"""Asking a cluster group for a member, in one line."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from api.schemas.decisions import in_words
from api.texts import Language
from cluster_groups.decide.choose import Choice, Inquiry, choose_member, inquire
from cluster_groups.decide.decision import Decision, tell
from cluster_groups.decide.match import accelerator_of, match_cluster
from cluster_groups.decide.members import Wish, survey
from cluster_groups.decide.rank import Offer
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.group import ClusterGroup
from kernel.reasons import Reason
from tests.builders.clusters import NOW

ANYTHING = Demand()


def asked_of(
    group: ClusterGroup,
    views: Mapping[str, ClusterView],
    demand: Demand = ANYTHING,
    now: datetime = NOW,
    **wish: Any,
) -> Inquiry:
    made = Wish(match=lambda view: match_cluster(view, demand), accelerators=demand.gpu_types, **wish)
    return inquire(group, survey(group, views, now), made, now)


def decide(asked: Inquiry, offers: Mapping[str, Offer], run: str = "run_1") -> Decision:
    return tell(asked, offers, chosen(asked, offers, run), run)


def because(decision: Decision | Mapping[str, Any]) -> str:
    """As people read it."""
    told = decision.to_json() if isinstance(decision, Decision) else decision
    return in_words(told["because"], Language.EN) or ""


def chosen(asked: Inquiry, offers: Mapping[str, Offer], run: str = "run_1") -> Choice:
    return choose_member(asked, offers, run)


def choose(
    group: ClusterGroup,
    *views: ClusterView,
    demand: Demand = ANYTHING,
    lacks: Mapping[str, Reason] | None = None,
    offers: Mapping[str, Mapping[str, Any]] | None = None,
    now: datetime = NOW,
    run: str = "run_1",
    **wish: Any,
) -> Decision:
    """`lacks` by member; where none is given it has room. `offers` are further facts by member."""
    by_name = {view.name: view for view in views}
    made = {
        name: Offer(
            **{"lack": (lacks or {}).get(name), "accelerator": accelerator_of(view, demand)}
            | dict((offers or {}).get(name, {}))
        )
        for name, view in by_name.items()
    }
    return decide(asked_of(group, by_name, demand, now, **wish), made, run)
