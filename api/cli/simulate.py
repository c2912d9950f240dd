"""Plan capacity without a cluster: the service's own decisions over a world that is only simulated."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

import click

from api.cli.documents import read_document
from api.cli.session import Command, Session, output_option, pass_session
from api.cli.tables import column

if TYPE_CHECKING:
    from rayjobs.simulation.outcome import Outcome, Waits

_WAITS = (
    column("WORKLOAD", "workload"),
    column("SUBMITTED", "submitted"),
    column("STARTED", "started"),
    column("WAIT MEAN", "mean"),
    column("P50", "p50"),
    column("P99", "p99"),
    column("LONGEST", "longest"),
    column("NEVER STARTED", "unplaced"),
)


@click.command(cls=Command)
@click.argument("file", type=click.File(encoding="utf-8"), metavar="FILE")
@output_option
@pass_session
def simulate(session: Session, file: TextIO) -> None:
    """Say who would wait how long with the clusters, quotas and work that FILE describes (YAML or JSON).

    Needs no server: the decisions are those of this version of Muster. docs/how-to/plan-capacity.md shows a file.
    """
    from pydantic import ValidationError  # noqa: PLC0415  loads what no other command needs

    from rayjobs.simulation.trace import Trace  # noqa: PLC0415
    from rayjobs.simulation.world import simulate as run_simulation  # noqa: PLC0415

    try:
        trace = Trace.model_validate(read_document(file))
    except ValidationError as error:
        raise click.UsageError(f"{file.name}: {_told(error)}") from error
    outcome = run_simulation(trace)
    if session.out.format in {"table", "wide"}:
        _print(session, outcome)
    else:
        session.out.record(asdict(outcome), (), "makespan_s")


def _told(error: Any) -> str:
    places = (("/".join(str(part) for part in one["loc"]), one["msg"]) for one in error.errors()[:5])
    return "; ".join(f"{place}: {message}" if place else message for place, message in places)


def _waited(waits: "Waits") -> dict[str, str]:
    """Nothing for those of whom nobody started: they have waited, and who knows for how long."""
    if not waits.started:
        return {}
    seconds = {"mean": waits.mean_s, "p50": waits.p50_s, "p99": waits.p99_s, "longest": waits.longest_s}
    return {name: f"{value:.1f} s" for name, value in seconds.items()}


def _print(session: Session, outcome: "Outcome") -> None:
    rows = [
        {
            "workload": name,
            "submitted": waits.submitted,
            "started": waits.started,
            **_waited(waits),
            "unplaced": ", ".join(f"{count} {code}" for code, count in waits.unplaced.items()) or None,
        }
        for name, waits in outcome.waits.items()
    ]
    session.out.rows(rows, _WAITS, "workload")
    used = ", ".join(f"{name} {share:.0%}" for name, share in outcome.utilisation.items())
    click.echo(f"\nover after {outcome.makespan_s:.1f} s · in use while somebody waited: {used or 'nothing'}")
    click.echo(
        f"{outcome.admissions} starts in {outcome.rounds} looks at the queue, {outcome.scheduler_s:.2f} s of processor"
    )
