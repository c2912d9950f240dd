"""What was used, by whom, and what of it did no work."""

import re
from typing import Any

import click

from api.cli.session import Group, Session, pass_session
from api.cli.shapes import USAGE
from api.cli.verbs import listing_options, print_list

_GROUP_BY = click.Choice(["resource_group", "job", "user", "day"])


class Instant(click.ParamType[str]):
    """A time like the API's; a date is its beginning in UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        del param, ctx
        return f"{value}T00:00:00Z" if re.fullmatch(r"\d{4}-\d{2}-\d{2}", str(value)) else str(value)


def interval_options(command: Any) -> Any:
    """Of what and from when till when."""
    command = click.option("--group-by", type=_GROUP_BY, default="resource_group", show_default=True, help="Sum by.")(
        command
    )
    command = click.option("--to", type=Instant(), help="Up to this time; now without it.")(command)
    return click.option("--from", "from", type=Instant(), help="From this time on, like 2030-01-31; 30 days before.")(
        command
    )


@click.group(cls=Group)
def usage() -> None:
    """What was used, and what of it did no work."""


@usage.command("list")
@interval_options
@listing_options
@pass_session
def list_usage(session: Session, *, show_all: bool, **query: Any) -> None:
    """List CPU, memory and GPU hours held since full allocation, and the CPU hours that did no work.

    HOLD is what was reserved while other parts of the run were not; COLD START, while its cluster came up; FAILED, what
    failed attempts used before another one followed. -o json gives seconds, of memory and GPUs too.
    """
    print_list(session, USAGE, session.muster.usage.page, show_all=show_all, query=query)


@usage.command()
@interval_options
@pass_session
def csv(session: Session, **query: Any) -> None:
    """Print everything as CSV, in seconds."""
    click.echo(session.muster.usage.csv(**query), nl=False)
