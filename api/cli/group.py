"""Cluster groups and their policies."""

from typing import TextIO

import click

from api.cli.documents import edit_document, read_document
from api.cli.fields import Field, field
from api.cli.session import Group, Session, output_option, pass_session
from api.cli.shapes import GROUP
from api.cli.verbs import add_create, add_delete, add_edit, add_list, add_show, file_option, kept_on_refusal
from api.client import Json

FIELDS: tuple[Field, ...] = (
    field("--description", "description", "What it is for."),
    field("--timezone", "timezone", "Time zone of its windows, like Asia/Shanghai."),
    field("--member", "members", "A member cluster, in the order of preference.", is_many=True),
    field("--preset", "policy.preset", "Policy to start from, like failover."),
)
_POLICY_FIELDS = ("timezone", "members", "policy", "comment")


@click.group(cls=Group)
def group() -> None:
    """Cluster groups and their policies."""


def _prepare(_session: Session, body: Json, _dry_run: bool) -> None:
    members = body.get("members") or []
    if any(isinstance(member, str) for member in members):
        body["members"] = [{"cluster": member} if isinstance(member, str) else member for member in members]


add_create(group, GROUP, FIELDS, _prepare)
add_list(group, GROUP, ["name", "created_by"])
add_show(group, GROUP)
add_edit(group, GROUP, FIELDS, _prepare)
add_delete(group, GROUP)


@group.group()
def policy() -> None:
    """How a group picks the cluster for a run."""


@policy.command("show")
@click.argument("ref", metavar="GROUP")
@output_option
@pass_session
def show_policy(session: Session, ref: str) -> None:
    """Show members and policy of a group."""
    session.out.details(session.muster.groups.policy(ref).body, "revision")


@policy.command("edit")
@click.argument("ref", metavar="GROUP")
@file_option
@click.option("--comment", help="Why, for the list of revisions.")
@output_option
@pass_session
def edit_policy(session: Session, *, ref: str, file: TextIO | None, comment: str | None) -> None:
    """Change members and policy of a group in $EDITOR, or from a file."""
    answer = session.muster.groups.policy(ref)
    before = {name: answer.body[name] for name in _POLICY_FIELDS if name in answer.body}
    wanted = read_document(file) if file else edit_document(before, session.say("edit_heading", ref=ref))
    if wanted is None or wanted == before:
        session.tell("unchanged")
        return
    if comment is not None:
        wanted["comment"] = comment
    with kept_on_refusal(session, None if file else wanted):
        changed = session.muster.groups.set_policy(ref, wanted, etag=answer.etag)
    session.warn(changed)
    session.out.details(changed, "revision")
