"""The command `muster`. Only click is loaded to print help; a noun's module is loaded when it is called."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from api.cli.session import Group, Session, shared_options

NOUNS = {
    "serve": "Run the service.",
    "login": "Keep address and token of a server.",
    "whoami": "Show whose token is used.",
    "job": "Jobs: saved definitions of what to run.",
    "run": "Runs: executions of jobs, their logs and reasons.",
    "package": "Packages: the ZIP files jobs run from.",
    "cluster": "Ray clusters.",
    "group": "Cluster groups and their policies.",
    "volume": "Volumes: data that is mounted into runs.",
    "credential": "Secrets that clusters, packages and volumes refer to by name.",
    "quota": "Resource packages and resource groups.",
    "usage": "What was used, and what of it did no work.",
    "simulate": "Plan capacity: who would wait how long.",
    "token": "Tokens of people and programs.",
    "audit": "Who did what.",
}
_MODULES = {"whoami": "login", "token": "people", "audit": "people"}


class Root(Group):
    """Ends every call with an exit code of ours, told in one line when it is not 0."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in NOUNS:
            return None
        module = import_module(f"api.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(NOUNS.items()))

    def main(self, *args: Any, **kwargs: Any) -> Any:
        session = Session()
        if isinstance(sys.stdout, TextIOWrapper):  # a character that the terminal's encoding lacks is no reason to stop
            sys.stdout.reconfigure(errors="backslashreplace")
        kwargs = {"prog_name": "muster", **kwargs, "standalone_mode": False, "obj": session}
        try:
            code = super().main(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  whatever it is, the user gets one line and a code
            from api.cli.errors import report  # noqa: PLC0415  nothing of it is needed while all goes well

            code = report(error, session)
            if isinstance(error, OSError) and not error.filename:
                _give_up_output()
        finally:
            session.close()
        sys.exit(code)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _reader_may_leave():  # help is printed here
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _reader_may_leave():
            code = super().invoke(ctx)
            sys.stdout.flush()
        return code


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """One who has enough: `muster run logs … | head`."""
    try:
        yield
    except BrokenPipeError:
        _give_up_output()
        raise click.exceptions.Exit(141) from None


def _give_up_output() -> None:
    """What is still in its buffers must not fail once more at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


@click.command(cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="muster", message="%(prog)s %(version)s")
def main() -> None:
    """Muster takes Ray jobs, decides where and when they run, runs them there, and keeps everything about them.

    Server and token come from --address and --token, from MUSTER_ADDRESS and MUSTER_TOKEN, from `muster login`, or are
    those of the server on this machine. The options below hold after every command too.

    \b
    Exit codes: 0 done · 1 the run did not succeed · 2 wrong call or refused content
    3 not found · 4 denied · 5 server unreachable · 6 not in the present state
    124 wait timed out · 130 Ctrl-C
    """  # noqa: D301  \b is click's mark for lines to leave as they are


main.params.extend(shared_options(hidden=False))
