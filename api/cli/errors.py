"""From an error to one line, a hint and an exit code.

Exit codes hold with every flag: a script that asks whether its run failed must not be told 1 for anything else.
"""

import traceback
from contextlib import suppress
from enum import IntEnum

import click

from api.cli.session import Session
from api.client import errors


class ExitCode(IntEnum):
    OK = 0
    RUN_FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    DENIED = 4
    UNREACHABLE = 5
    CONFLICT = 6
    INTERNAL = 70
    TIMED_OUT = 124
    INTERRUPTED = 130
    PIPE_CLOSED = 141


MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.RUN_FAILED: "the run that was waited for or followed did not succeed",
    ExitCode.USAGE: "wrong call, content that Muster refuses, or a file or output that cannot be read or written",
    ExitCode.NOT_FOUND: "no such thing",
    ExitCode.DENIED: "not allowed, or not logged in",
    ExitCode.UNREACHABLE: "the server did not answer, or is out of order",
    ExitCode.CONFLICT: "not in the present state: name taken, in use, changed by somebody else, too many requests",
    ExitCode.INTERNAL: "a fault of the command line itself",
    ExitCode.TIMED_OUT: "`run wait --timeout` is over",
    ExitCode.INTERRUPTED: "Ctrl-C, or no to a question; a run that was followed goes on",
}

_BY_STATUS = {
    401: ExitCode.DENIED,
    403: ExitCode.DENIED,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.CONFLICT,
    412: ExitCode.CONFLICT,
    428: ExitCode.CONFLICT,
    429: ExitCode.CONFLICT,
}


def report(error: Exception, session: Session, *, about: str | None = None) -> ExitCode:
    """Tell the user on standard error. `about`: to which of several it happened."""
    if session.debug and not isinstance(error, click.ClickException | click.Abort):
        _tell("".join(traceback.format_exception(error)).rstrip())
    match error:
        case click.exceptions.NoArgsIsHelpError():
            error.show()
            return ExitCode.USAGE
        case click.Abort():
            return ExitCode.INTERRUPTED
        case click.ClickException():
            _lines(session, "USAGE", error.format_message(), _help_hint(error))
            return ExitCode.USAGE
        case errors.ApiError():
            return _report_answer(error, session, about)
        case errors.WaitTimedOut():
            _lines(session, "WAIT_TIMED_OUT", session.say("wait_timed_out", run=error), None)
            return ExitCode.TIMED_OUT
        case errors.ServerUnreachable():
            key = "answer_lost" if error.answer_lost else "unreachable"
            text = session.say(key, address=error.address, reason=error.reason)
            _lines(session, "SERVER_UNREACHABLE", text, session.say(f"{key}_advice"))
            return ExitCode.UNREACHABLE
        case OSError() if error.filename:
            _lines(session, "FILE", f"{error.filename}: {error.strerror}", None)
            return ExitCode.USAGE
        case OSError() if error.strerror:  # of what has no name: standard output
            _lines(session, "OUTPUT", error.strerror, None)
            return ExitCode.USAGE
    text = session.say("internal", kind=type(error).__name__, reason=error)
    _lines(session, "INTERNAL", text, None if session.debug else session.say("internal_advice"))
    return ExitCode.INTERNAL


def _report_answer(error: errors.ApiError, session: Session, about: str | None) -> ExitCode:
    advice = error.advice
    if error.status == 401 and not session.token:
        advice = session.say("no_token_advice")
    text = ": ".join(filter(None, [about, error.detail or error.title]))
    match error.errors:
        case [only] if only.code == error.code:
            _lines(session, error.code, f"{text} ({only.pointer})" if only.pointer else text, None)
        case findings:
            _lines(session, error.code, text, None)
            for one in findings:
                _tell(f"  {one.pointer or '/'}: {one.code}: {one.detail}")
    if advice:
        _tell(f"{session.say('hint')}: {advice}")
    if session.debug:
        _tell(f"status {error.status}, request {error.request_id}, params {error.params}")
    if error.status in _BY_STATUS:
        return _BY_STATUS[error.status]
    return ExitCode.USAGE if 400 <= error.status < 500 else ExitCode.UNREACHABLE


def _lines(session: Session, code: str, text: str, hint: str | None) -> None:
    _tell(f"{session.say('error')}: {code}: {' '.join(text.split())}")
    if hint:
        _tell(f"{session.say('hint')}: {hint}")


def _tell(line: str) -> None:
    """Where nobody can be told, the exit code still says it."""
    with suppress(OSError):
        click.echo(line, err=True)


def _help_hint(error: click.ClickException) -> str | None:
    context = getattr(error, "ctx", None)
    return f"{context.command_path} --help" if context else None
