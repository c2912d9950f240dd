"""The verbs that every noun has: list, show, create, edit, delete."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TextIO

import click

from api.cli.documents import edit_document, keep_text, read_document, to_yaml
from api.cli.fields import Field, Tag, any_given, field_options, fill
from api.cli.session import Session, output_option, pass_session
from api.cli.tables import Column
from api.client import Json
from api.client.errors import ClientError
from api.client.muster import Muster
from api.client.resource import Resource, all_items

Prepare = Callable[[Session, Json, bool], None]
"""Last changes to a body before it is sent; told whether it is a dry run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Noun:
    word: str
    pick: Callable[[Muster], Resource]
    columns: Sequence[Column]
    key: str = "name"
    """The field that commands take and `-o name` prints."""
    read_only: frozenset[str] = frozenset()
    """Fields of an answer that nobody can change, left out of what an editor shows."""

    @property
    def argument(self) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return click.argument("ref", metavar=self.word.upper())


def add_list(group: click.Group, noun: Noun, filters: Sequence[str] = (), *, repeatable: Collection[str] = ()) -> None:
    """`repeatable`: those of the filters of which the API takes any of several values."""

    @listing_options
    @pass_session
    def run(session: Session, *, show_all: bool, **query: Any) -> None:
        print_list(session, noun, noun.pick(session.muster).page, show_all=show_all, query=query)

    for name in reversed(filters):
        help_text, kind = _FILTERS.get(name, (f"Only with this {name}.", str))
        traits: Json = {"type": kind, "help": help_text, "callback": _only_one}
        if name in repeatable:
            traits |= {"help": f"{help_text[:-1]}; may be repeated.", "callback": None}
        run = click.option(f"--{name.replace('_', '-')}", name, multiple=True, **traits)(run)
    group.command("list", help="List, newest first.")(run)


def add_show(group: click.Group, noun: Noun) -> None:
    @group.command("show", help="Show everything about one.")
    @noun.argument
    @output_option
    @pass_session
    def run(session: Session, ref: str) -> None:
        session.out.details(noun.pick(session.muster).get(ref), noun.key)


def add_queue(group: click.Group, noun: Noun, queued: Noun) -> None:
    """Of a noun whose resource has a queue: `queued` is what waits there."""

    @group.command("queue", help="List the runs that wait for it, first in line first.")
    @noun.argument
    @listing_options
    @pass_session
    def run(session: Session, ref: str, *, show_all: bool, **query: Any) -> None:
        resource: Any = noun.pick(session.muster)
        print_list(session, queued, lambda **page: resource.queue(ref, **page), show_all=show_all, query=query)


def add_delete(
    group: click.Group, noun: Noun, *, help_text: str = "Delete one that is not in use.", can_force: bool = False
) -> None:
    @noun.argument
    @pass_session
    def run(session: Session, ref: str, *, force: bool = False) -> None:
        left = noun.pick(session.muster).delete(ref, force=force)
        session.warn(left)
        is_gone = left.get("state") in {None, "DELETED"}
        click.echo(session.say("deleted" if is_gone else "deleting", ref=ref))

    if can_force:
        run = click.option("--force", is_flag=True, help="End the live runs on it first.")(run)
    group.command("delete", help=help_text)(run)


def add_create(
    group: click.Group,
    noun: Noun,
    fields: Sequence[Field],
    prepare: Prepare | None = None,
    present: Callable[..., None] | None = None,
) -> None:
    @group.command("create", help="Create from options, from a file, or from a file with options over it.")
    @click.argument("name", required=False)
    @file_option
    @field_options(fields)
    @dry_run_option
    @output_option
    @pass_session
    def run(session: Session, *, name: str | None, file: TextIO | None, dry_run: bool, **values: Any) -> None:
        body = read_document(file) if file else {}
        if name is not None:
            body["name"] = name
        fill(body, fields, values)
        if prepare:
            prepare(session, body, dry_run)
        answer = noun.pick(session.muster).create(body, dry_run=dry_run)
        (present or print_change)(session, noun, answer, dry_run=dry_run)


def add_edit(group: click.Group, noun: Noun, fields: Sequence[Field], prepare: Prepare | None = None) -> None:
    @group.command("edit", help="Change fields by options or a file; with neither, open it in $EDITOR.")
    @noun.argument
    @file_option
    @field_options(fields)
    @dry_run_option
    @output_option
    @pass_session
    def run(session: Session, *, ref: str, file: TextIO | None, dry_run: bool, **values: Any) -> None:
        resource = noun.pick(session.muster)
        answer = resource.read(ref)
        before = {name: value for name, value in answer.body.items() if name not in noun.read_only}
        wanted = deepcopy(before) | (read_document(file) if file else {})
        fill(wanted, fields, values)
        by_hand = file is None and not any_given(values)
        if by_hand:
            wanted = edit_document(before, session.say("edit_heading", ref=ref)) or before
        if prepare:
            prepare(session, wanted, dry_run)
        changes = _changes(before, wanted)
        if not changes:
            session.tell("unchanged")
            return
        with kept_on_refusal(session, wanted if by_hand else None):
            changed = resource.edit(ref, changes, etag=answer.etag, dry_run=dry_run)
        print_change(session, noun, changed, dry_run=dry_run)


def print_change(session: Session, noun: Noun, answer: Json, *, dry_run: bool = False) -> None:
    session.warn(answer)
    if dry_run:
        session.tell("dry_run")
    session.out.record(answer, noun.columns, noun.key)


def print_list(session: Session, noun: Noun, fetch: Callable[..., Json], *, show_all: bool, query: Json) -> None:
    """One page, or all of them as if they were one."""
    if not show_all:
        page = fetch(**query)
        session.out.page(page, noun.columns, noun.key)
        if page.get("next_cursor"):
            session.tell("more_rows", cursor=page["next_cursor"])
        return
    items = all_items(fetch, **query)
    if session.output in {"json", "yaml"}:
        session.out.page({"items": list(items), "next_cursor": None}, noun.columns, noun.key)
    else:
        session.out.rows(items, noun.columns, noun.key)


def print_secret(session: Session, noun: Noun, answer: Json, *, dry_run: bool = False) -> None:
    """What is shown only once goes alone to standard output, ready for a variable."""
    if session.output not in {"table", "wide"} or "secret" not in answer:
        print_change(session, noun, answer, dry_run=dry_run)
        return
    session.warn(answer)
    session.tell("token_once")
    click.echo(answer["secret"])


@contextmanager
def kept_on_refusal(session: Session, edited: Json | None) -> Iterator[None]:
    """What somebody wrote in an editor is not lost with the refusal, be it the server's or their own."""
    try:
        yield
    except (ClientError, click.Abort):
        if edited is not None:
            session.tell("edit_kept", file=keep_text(to_yaml(edited)))
        raise


def listing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = output_option(command)
    command = click.option("--all", "show_all", is_flag=True, help="All pages.")(command)
    command = click.option("--sort", help="Field to sort by, with - before it for descending.")(command)
    command = click.option("--cursor", help="Go on where another page ended.")(command)
    return click.option("--limit", type=click.IntRange(1, 500), help="Items of a page.")(command)


def file_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "-f", "--file", type=click.File(encoding="utf-8"), help="YAML or JSON of the API's body; - is standard input."
    )(command)


def dry_run_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--dry-run", is_flag=True, help="Check everything, store nothing.")(command)


_FILTERS: dict[str, tuple[str, Any]] = {"tag": ("Only with this tag.", Tag()), "state": ("Only in this state.", str)}


def _only_one(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> str | None:
    if len(values) > 1:
        raise click.BadParameter("it can be given only once")
    return values[0] if values else None


def _changes(before: Json, wanted: Json) -> Json:
    """Fields that differ; one that was taken out is emptied."""
    changed = {name: value for name, value in wanted.items() if name not in before or before[name] != value}
    return changed | {name: _empty(value) for name, value in before.items() if name not in wanted}


def _empty(value: object) -> object:
    return type(value)() if isinstance(value, list | dict) else None
