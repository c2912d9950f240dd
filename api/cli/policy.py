"""The policy of a cluster group: how it picks the cluster for a run, who changed it, and what it would do."""

from typing import Any, TextIO

import click

from api.cli.decisions import decision_lines, fate_lines
from api.cli.documents import read_document
from api.cli.fields import Pair
from api.cli.policy_edit import Consent, apply, edit
from api.cli.policy_text import content_of, for_people
from api.cli.session import Command, Group, Session, output_option, pass_session
from api.cli.shapes import REVISION
from api.cli.verbs import dry_run_option, file_option, listing_options, print_list
from api.client import Json

_GROUP = click.argument("ref", metavar="GROUP")
READ_ONLY = frozenset({"revision", "created_at", "created_by", "changes", "warnings"})


@click.group(cls=Group)
def policy() -> None:
    """How a group picks the cluster for a run."""


@policy.command("show")
@_GROUP
@click.option("--revision", type=click.IntRange(1), help="As it was in this revision; by default as it is.")
@output_option
@pass_session
def show_policy(session: Session, ref: str, revision: int | None) -> None:
    """Show members and policy of a group."""
    body = session.muster.groups.policy(ref, revision).body
    session.out.details(for_people(body) if session.output in {"table", "wide"} else body, "revision")


@policy.command("edit")
@_GROUP
@file_option
@click.option("--comment", help="Why, for the history.")
@click.option("--yes", "is_agreed", is_flag=True, help="Apply without asking.")
@dry_run_option
@output_option
@pass_session
def edit_policy(
    session: Session, *, ref: str, file: TextIO | None, comment: str | None, is_agreed: bool, dry_run: bool
) -> None:
    """Change members and policy of a group in $EDITOR, or from a file.

    Shows what changes, the decision that a small run would get, and what becomes of the runs that wait; then asks.
    What `policy show -o yaml` prints can be given as the file; a part that the text leaves out stays as it is.
    """
    given = _writable(read_document(file)) if file else {}
    if comment is not None:
        given["comment"] = comment
    consent = Consent(is_given=is_agreed, dry_run=dry_run)
    _print(session, edit(session, ref, given, consent, by_hand=file is None))


@policy.command("history")
@_GROUP
@listing_options
@pass_session
def show_history(session: Session, *, ref: str, show_all: bool, **query: Any) -> None:
    """List the revisions of a policy: who made each, when, why, and what it changed."""
    print_list(
        session, REVISION, lambda **page: session.muster.groups.revisions(ref, **page), show_all=show_all, query=query
    )


@policy.command("restore")
@_GROUP
@click.argument("revision", type=click.IntRange(1))
@click.option("--comment", help="Why, for the history; by default that it was restored.")
@click.option("--yes", "is_agreed", is_flag=True, help="Apply without asking.")
@dry_run_option
@output_option
@pass_session
def restore_policy(
    session: Session, *, ref: str, revision: int, comment: str | None, is_agreed: bool, dry_run: bool
) -> None:
    """Make an earlier revision the policy again, as a new one. Shows the same as an edit, and asks."""
    groups = session.muster.groups

    def send(etag: str | None, *, dry_run: bool) -> Json:
        return groups.restore(ref, revision, comment=comment, etag=etag, dry_run=dry_run)

    _print(session, apply(session, ref, groups.policy(ref), send, Consent(is_given=is_agreed, dry_run=dry_run)))


@click.command(cls=Command)
@_GROUP
@click.option("--job", help="A run of this job, as if it went through the group.")
@click.option("--cpu", type=float, help="Instead of a job: what a run asks for.")
@click.option("--memory-gib", type=float)
@click.option("--gpu", type=int)
@click.option("--gpu-type", "gpu_types", multiple=True, help="A type it takes, the best first; may be repeated.")
@click.option("--label", "labels", type=Pair(), multiple=True, help="A label of the cluster it needs.")
@click.option("--ray-version")
@click.option("--python-version")
@click.option("--at", help="When, like 2026-03-08T02:30:00-05:00; now unless given.")
@click.option(
    "--policy", "file", type=click.File(encoding="utf-8"), help="A draft, as for `policy edit`; - is standard input."
)
@output_option
@pass_session
def simulate(session: Session, *, ref: str, job: str | None, at: str | None, file: TextIO | None, **needs: Any) -> None:
    """Say which member a run would get and why, and what becomes of the runs that wait. Nothing is stored."""
    needs["labels"] = dict(needs["labels"])
    supposed: Json = {"job": job, "at": at, "requirements": {name: value for name, value in needs.items() if value}}
    if file is not None:
        supposed["policy"] = content_of(session.muster.groups.policy(ref).body) | _writable(read_document(file))
    told = session.muster.groups.simulate(ref, {name: value for name, value in supposed.items() if value})
    if session.output == "name" and told["chosen"] is None:
        return
    if session.output not in {"table", "wide"}:
        session.out.record(told, (), "chosen")
        return
    for line in (*decision_lines(session, told), "", *fate_lines(session, told["waiting_runs"])):
        click.echo(line, color=session.out.colours)


def _writable(body: Json) -> Json:
    """Of what `policy show` prints the part that can be written; its comment was about another edit."""
    dropped = READ_ONLY | {"comment"} if "revision" in body else READ_ONLY
    return {name: value for name, value in body.items() if name not in dropped}


def _print(session: Session, changed: Json | None) -> None:
    if changed is not None:
        session.out.record(changed, REVISION.columns, REVISION.key)
