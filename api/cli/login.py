"""Log in to a server, and tell who one is there."""

import sys

import click

from api.cli.credentials import save_login
from api.cli.session import Command, Session, output_option, pass_session


@click.command(cls=Command)
@click.argument("address", required=False)
@pass_session
def login(session: Session, address: str | None) -> None:
    """Keep address and token of a server for the next commands.

    The token is asked for, or read from standard input. It is tried, then kept in a file that only you can read.
    """
    if address:
        session.given_address = address
    session.given_token = session.given_token or _ask_for_token()
    me = session.muster.whoami()
    file = save_login(session.address, session.given_token)
    session.tell("logged_in", address=session.address, user=me["user"], role=me["role"], file=file)


@click.command(cls=Command)
@output_option
@pass_session
def whoami(session: Session) -> None:
    """Show whose token is used, and what it may do."""
    session.out.details(session.muster.whoami(), "user")


def _ask_for_token() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("token", hide_input=True, err=True)).strip()
    token = sys.stdin.readline().strip()
    if not token:
        raise click.UsageError("no token on standard input")
    return token
