"""Editing the policy of a group: nothing is stored before whoever edits it has seen what it would do."""

import sys
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import click

from api.cli.decisions import decision_lines, fate_lines
from api.cli.documents import edit_document
from api.cli.policy_text import annotated, content_of, difference, is_only_preset, merged
from api.cli.session import Session
from api.cli.tables import cell_text
from api.cli.verbs import kept_on_refusal
from api.client import Json
from api.client.errors import ApiError, ClientError
from api.client.http import Answer

_STALE = 412
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


class Send(Protocol):
    def __call__(self, etag: str | None, *, dry_run: bool) -> Json:
        """Against the revision of this ETag; the one that comes of it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Consent:
    """`is_given`: beforehand, by --yes."""

    is_given: bool
    dry_run: bool


def apply(session: Session, ref: str, present: Answer, send: Send, consent: Consent) -> Json | None:
    """What it became, or would become in a dry run; None when there is nothing to do. Whoever declines aborts."""
    planned = send(present.etag, dry_run=True)
    session.warn(planned)
    if planned["revision"] == present.body["revision"]:
        session.tell("unchanged")
        return None
    _tell_difference(session, difference(present.body, planned, _names(session, present.body)))
    if is_only_preset(present.body, planned):
        session.tell("preset_alone")
    _tell_effect(session, ref, planned)
    if consent.dry_run:
        session.tell("dry_run")
        return planned
    if not (consent.is_given or _agrees(session, "apply_question")):
        session.tell("not_applied")
        raise click.Abort
    return send(present.etag, dry_run=False)


def edit(session: Session, ref: str, given: Json, consent: Consent, *, by_hand: bool) -> Json | None:
    """`given` counts over what there is; `by_hand`: then somebody goes over it in an editor.

    Either way a part that is left out stays as it is.
    """
    present = session.muster.groups.policy(ref)
    to_text = partial(annotated, description=_description(session)) if by_hand else None
    heading = session.say("policy_heading", ref=ref)
    wanted = {**content_of(present.body), "comment": "", **given}
    while True:
        if to_text is not None:
            wanted |= edit_document(wanted, heading, to_text) or {}
        send = partial(_put, session, ref, wanted)
        with kept_on_refusal(session, wanted if by_hand else None):
            outcome = _apply_or_go_on(session, ref, present, send, consent)
        if not isinstance(outcome, Answer):
            return outcome
        wanted |= merged(content_of(present.body), content_of(wanted), content_of(outcome.body))
        present = outcome


def _apply_or_go_on(session: Session, ref: str, present: Answer, send: Send, consent: Consent) -> Json | Answer | None:
    """The policy as somebody else has left it meanwhile, when the edit is to go on from there."""
    try:
        return apply(session, ref, present, send, consent)
    except ApiError as error:
        if error.status != _STALE:
            raise
        theirs = _changed_meanwhile(session, ref, present, error)
        if consent.is_given or not _agrees(session, "go_on_question"):
            raise
        return theirs


def _agrees(session: Session, question: str) -> bool:
    """Nobody there to answer, and Ctrl-C, are a no."""
    try:
        return click.confirm(session.say(question), err=True)
    except click.Abort:
        click.echo(err=True)
        return False


def _put(session: Session, ref: str, wanted: Json, etag: str | None, *, dry_run: bool) -> Json:
    return session.muster.groups.set_policy(ref, wanted, etag=etag, dry_run=dry_run)


def _changed_meanwhile(session: Session, ref: str, present: Answer, error: ApiError) -> Answer:
    """Somebody else was faster: tell who, when, and what."""
    theirs = session.muster.groups.policy(ref)
    body = theirs.body
    who, at = error.params.get("changed_by"), cell_text(error.params.get("changed_at"))
    session.tell("changed_meanwhile", revision=body.get("revision"), by=who, at=at)
    _tell_difference(session, difference(present.body, body, _names(session, present.body, body)))
    return theirs


def _tell_difference(session: Session, lines: list[str]) -> None:
    colours = session.has_colours(sys.stderr)
    for line in lines:
        click.echo(click.style(line, fg=_COLOURS.get(line[:1])), err=True, color=colours)


def _tell_effect(session: Session, ref: str, planned: Json) -> None:
    """That nobody can tell is no reason not to edit."""
    try:
        draft = {**content_of(planned), "comment": planned["comment"]}
        told = session.muster.groups.simulate(ref, {"policy": draft})
    except ClientError as error:
        session.tell("no_simulation", reason=error)
        return
    session.tell("sample_heading")
    for line in (*decision_lines(session, told), *fate_lines(session, told.get("waiting_runs") or ())):
        click.echo(line, err=True, color=session.has_colours(sys.stderr))


def _names(session: Session, before: Json, after: Json | None = None) -> tuple[str, str]:
    name = session.say("revision_name", revision=before.get("revision"))
    later = session.say("edited_name") if after is None else session.say("revision_name", revision=after["revision"])
    return name, later


def _description(session: Session) -> Json:
    """A server whose description cannot be had is edited all the same."""
    try:
        return session.muster.description()
    except ClientError:
        return {}
