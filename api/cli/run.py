"""Runs: executions of jobs, their logs and reasons."""

from typing import Any

import click

from api.cli.decisions import decision_lines
from api.cli.documents import to_json, to_yaml
from api.cli.errors import ExitCode, report
from api.cli.follow import (
    LogPrinter,
    Teller,
    conclude,
    detaching,
    end_line,
    follow,
    log_pages,
    place_in,
    tail_start,
    task_options,
)
from api.cli.session import Command, Group, Session, output_option, pass_session
from api.cli.shapes import EVENT, RUN, TASK
from api.cli.tables import cell_text
from api.cli.verbs import add_list, add_show, listing_options, print_change, print_list
from api.client import Json
from api.client.errors import ClientError
from api.client.runs import LogOf
from api.client.watch import Changed, RunWatch, has_reached, is_final
from rayjobs.model.run import RunState


@click.group(cls=Group)
def run() -> None:
    """Runs: executions of jobs, their logs and reasons."""


@click.command(cls=Command)
@click.argument("job")
@click.option("--follow", "follow_it", is_flag=True, help="Follow it to its end; Ctrl-C leaves it running.")
@click.option("--priority", type=int, help="1 to 9, on-demand only.")
@click.option("--max-wait-s", type=int, help="Give up waiting after so many seconds.")
@output_option
@pass_session
def submit(session: Session, job: str, *, follow_it: bool, priority: int | None, max_wait_s: int | None) -> None:
    """Start a run of a job and print its id."""
    started = session.muster.jobs.run(job, priority=priority, max_wait_s=max_wait_s)
    session.warn(started)
    if session.output == "table":
        click.echo(started["id"])
    elif not follow_it:
        session.out.record(started, RUN.columns, RUN.key)
    if follow_it:
        follow(session, started["id"], LogPrinter(session))


run.add_command(submit, "submit")
add_list(
    run, RUN, ["job", "state", "cluster", "cluster_group", "resource_group", "created_by", "tag"], repeatable={"state"}
)
add_show(run, RUN)


@run.command()
@click.argument("ref", metavar="RUN")
@click.option("-f", "--follow", "follow_it", is_flag=True, help="Go on until the run and its log have ended.")
@click.option("--tail", "line_count", type=click.IntRange(0), help="Only so many last lines, and what follows.")
@click.option("--since", "offset", type=click.IntRange(0), default=0, help="Start at this byte, as told on Ctrl-C.")
@click.option("--attempt", type=click.IntRange(1), help="Log of this attempt; by default of the last one.")
@click.option("--task-group", help="Log of a task of this group; without it that of the driver.")
@click.option("--task", type=click.IntRange(0), help="Which task of the group, from 0.")
@pass_session
def logs(
    session: Session,
    ref: str,
    *,
    follow_it: bool,
    line_count: int | None,
    offset: int,
    attempt: int | None,
    task_group: str | None,
    task: int | None,
) -> None:
    """Print the log of a run, also when its cluster is gone. Log lines carry no times of ours: --since counts bytes."""
    of = LogOf(task_group=task_group, task=0 if task is None and task_group is not None else task)
    epoch = attempt
    if follow_it and attempt is None:
        epoch = max((entry["epoch"] for entry in session.muster.runs.get(ref).get("attempts") or ()), default=None)
    printer, skip = LogPrinter(session), 0
    is_there = epoch is not None or not follow_it
    if line_count is not None and is_there:
        offset, skip = tail_start(log_pages(session, ref, of=of, attempt=epoch, offset=offset), line_count, offset)
    if not follow_it or (line_count is not None and is_there):
        complete = True
        for page in log_pages(session, ref, of=of, attempt=epoch, offset=offset):
            printer.print(page["data"][skip:])
            skip, offset, complete = max(0, skip - len(page["data"])), page["next_offset"], page["complete"]
        if not complete and not follow_it and is_final(session.muster.runs.get(ref)):
            printer.end_line()
            session.tell("log_on_its_way")
    if follow_it:
        follow(session, ref, printer, of=of, attempt=attempt, after=(epoch or 1) - 1, offset=offset)
    printer.end_line()


@run.command()
@click.argument("ref", metavar="RUN")
@output_option
@pass_session
def why(session: Session, ref: str) -> None:
    """Say why a run waits or ended: the reason, whose move it is, its place, what would help."""
    about = session.muster.runs.get(ref)
    decisions = session.muster.runs.decisions(ref)["items"]
    answer = {name: about.get(name) for name in ("id", "state", "condition", "end")} | {"decisions": decisions}
    if session.output in {"table", "wide"}:
        _explain(session, about, decisions)
    else:
        click.echo(to_yaml(answer).rstrip() if session.output == "yaml" else to_json(answer))


@run.command()
@click.argument("refs", metavar="RUN...", nargs=-1, required=True)
@output_option
@pass_session
def stop(session: Session, refs: tuple[str, ...]) -> None:
    """Stop runs in any state; `run wait` tells when one is over.

    Where one cannot be stopped, the others are all the same; the exit code is then that of the first failure.
    """
    stopped: list[Json] = []
    codes: list[ExitCode] = []
    for ref in refs:
        try:
            stopped.append(session.muster.runs.stop(ref))
        except ClientError as error:
            codes.append(report(error, session, about=ref if len(refs) > 1 else None))
    if len(refs) > 1:
        session.out.page({"items": stopped, "next_cursor": None}, RUN.columns, RUN.key)
    elif stopped:
        print_change(session, RUN, stopped[0])
    if codes:
        raise click.exceptions.Exit(codes[0])


@run.command()
@click.argument("ref", metavar="RUN")
@click.option(
    "--for",
    "target",
    type=click.Choice([state.value for state in RunState], case_sensitive=False),
    help="State to wait for; by default any end.",
)
@click.option("--timeout", "timeout_s", type=click.FloatRange(0), help="Seconds to wait at most; then exit code 124.")
@output_option
@pass_session
def wait(session: Session, ref: str, *, target: str | None, timeout_s: float | None) -> None:
    """Wait until a run is in a state or has left it behind; 1 if it ends without."""
    aim = RunState(target) if target else None
    watch = RunWatch(session.muster.runs, ref, timeout_s=timeout_s)
    teller = Teller(session)
    about: Json = {}
    with detaching(session, ref, lambda: f"muster run wait {ref}"):
        for event in watch.changes():
            teller.tell(event)
            about = event.run if isinstance(event, Changed) else about
            if about and (is_final(about) or (aim and has_reached(about, aim))):
                break
    session.out.record(about, RUN.columns, RUN.key)
    if aim and has_reached(about, aim):
        return
    conclude(session, about, shown=None)
    if aim:
        raise click.exceptions.Exit(ExitCode.RUN_FAILED)


@run.command()
@click.argument("ref", metavar="RUN")
@click.option("--attempt", type=click.IntRange(1), help="As they were in this attempt; by default as they are now.")
@listing_options
@pass_session
def tasks(session: Session, ref: str, *, show_all: bool, **query: Any) -> None:
    """List the tasks of a run: where each runs or ran, and how it ended."""
    print_list(session, TASK, lambda **page: session.muster.runs.tasks(ref, **page), show_all=show_all, query=query)


@run.command()
@click.argument("ref", metavar="RUN")
@listing_options
@pass_session
def events(session: Session, ref: str, *, show_all: bool, **query: Any) -> None:
    """List what happened to a run."""
    print_list(session, EVENT, lambda **page: session.muster.runs.events(ref, **page), show_all=show_all, query=query)


@run.command("set-priority")
@click.argument("ref", metavar="RUN")
@click.argument("priority", type=int)
@output_option
@pass_session
def set_priority(session: Session, ref: str, priority: int) -> None:
    """Change the priority of a waiting run."""
    print_change(session, RUN, session.muster.runs.set_priority(ref, priority))


def _explain(session: Session, about: Json, decisions: list[Json]) -> None:
    condition, end = about.get("condition"), about.get("end")
    if end:
        click.echo(end_line(session, about))
    elif condition:
        owner = session.say(f"owner_{condition['owner']}") if condition.get("owner") else None
        click.echo(f"{about['state']}  {condition['code']}: {condition.get('detail') or ''}")
        _pair(session, "why_owner", owner)
        _pair(session, "why_since", condition.get("since"))
        _pair(session, "why_place", place_in(session, condition))
        _pair(session, "why_ahead", ", ".join(condition.get("ahead") or ()))
        _pair(session, "why_start", condition.get("predicted_start"))
        _pair(session, "why_next", condition.get("next_check_at"))
    else:
        click.echo(f"{about['state']}: {session.say('not_waiting', run=about['id'])}")
    if end and end.get("task_group"):
        of = LogOf(task_group=end["task_group"], task=end["task"])
        _pair(session, "why_task", f"{of.task_group} {of.task}")
        _pair(session, "why_log", f"muster run logs {about['id']}{task_options(of)}")
    _pair(session, "why_help", (end or condition or {}).get("advice"))
    for decision in decisions:
        _tell_decision(session, decision)


def _tell_decision(session: Session, decision: Json) -> None:
    for line in ("", *decision_lines(session, decision)):
        click.echo(line, color=session.out.colours)


def _pair(session: Session, key: str, value: object) -> None:
    if value:
        click.echo(f"  {session.say(key)}: {cell_text(value)}")
