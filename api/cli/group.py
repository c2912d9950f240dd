"""Cluster groups and their policies."""

import click

from api.cli.fields import Field, field
from api.cli.policy import policy, simulate
from api.cli.session import Group, Session
from api.cli.shapes import GROUP, QUEUED
from api.cli.verbs import add_create, add_delete, add_edit, add_list, add_queue, add_show
from api.client import Json

FIELDS: tuple[Field, ...] = (
    field("--description", "description", "What it is for."),
    field("--timezone", "timezone", "Time zone of its windows, like Asia/Shanghai."),
    field("--member", "members", "A member cluster, in the order of preference.", is_many=True),
)
PRESET = field("--preset", "policy.preset", "Policy to start from, like failover.")
"""Of an edit it would change nothing: there all fields are given, and a preset fills those that are not."""


@click.group(cls=Group)
def group() -> None:
    """Cluster groups and their policies."""


def _name_members(_session: Session, body: Json, _dry_run: bool) -> None:
    if "members" in body:
        body["members"] = [{"cluster": one} if isinstance(one, str) else one for one in body["members"] or ()]


def _keep_members(session: Session, body: Json, _dry_run: bool) -> None:
    """Those that are only named keep the settings they had, in the order they are named in."""
    named = body.get("members") or ()
    if any(isinstance(one, str) for one in named):
        there = {one["cluster"]: one for one in session.muster.groups.get(body["name"])["members"]}
        body["members"] = [
            {**there.get(one, {"cluster": one}), "order": at} if isinstance(one, str) else {"order": at, **one}
            for at, one in enumerate(named)
        ]


add_create(group, GROUP, (*FIELDS, PRESET), _name_members)
add_list(group, GROUP, ["name", "created_by"])
add_show(group, GROUP)
add_edit(group, GROUP, FIELDS, _keep_members)
add_queue(group, GROUP, QUEUED)
add_delete(group, GROUP)
group.add_command(policy)
group.add_command(simulate)
