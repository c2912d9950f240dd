"""Pure: Ray's word on a runtime_env it could not make → which dependency it was, and what is to be done about it.

Ray tells it as a traceback, with the last lines that the installer printed. What is read here are the words of pip, uv
and conda themselves; of a text none of these fits the end is passed on, so that nothing is ever hidden.
"""

import re
from collections.abc import Callable

from rayjobs.model.run import End, EndClass, EndCode

MAX_MESSAGE = 2000
_MAX_LINES = 16
_READ_CHARACTERS = 20_000
_LINE_CHARACTERS = 500
"""Whoever writes a `setup.py` writes here: what is read is bounded, and no pattern tries a part of a line twice."""

_OURS = "SetupError: muster: "
"""What the words of our own plugin on the nodes begin with (`runtime_envs.node_plugin`)."""
_OUTPUT = re.compile(r"Last \d+ lines of stdout:\n")
_FROM_FILE = re.compile(r" \(?(from )-r \S*_requirements\.txt( \(line \d+\))?\)?")
_FILE = re.compile(r"(-r \S*_requirements\.txt \((?P<line>line \d+)\)| of /\S*_requirements\.txt)")
_ERROR = re.compile(r"\bERROR\b|^\s*error: |Retrying \(|\w(Error|NotFound): |which is not installed|has requirement")
_RAISED = re.compile(r"^(?:\w+\.)*\w+(?:Error|Exception|Failed)\b", re.MULTILINE)

_NO_CONDA = "Could not find Conda executable"
_LATE = re.compile(r"within the timeout of|\bTimeoutError\s*$")
_WANTED = re.compile(r"satisfies the requirement (\S+)")
_FETCHED = re.compile(r"Failed to fetch: \S+/([^/\s]+)/?\s")
_CONFLICT = re.compile(r"conflicting dependencies")
_PARTIES = re.compile(r"^[ \t]+(?:The user requested (\S+)|(\S+) \S+ depends on )", re.MULTILINE)
_BUILD = re.compile(r"subprocess-exited-with-error|Failed building wheel for")
_WORK = re.compile(r"^[ \t]{0,8}(?:Collecting ([^\s(]+)|Processing (\S+)\s)", re.MULTILINE)
_AFTER_THE_NAME = re.compile(r"\.tar\.|\.zip$|-py")

_ONE: tuple[tuple[EndCode, str], ...] = (
    (EndCode.DEPENDENCY_NOT_INSTALLABLE, r"Failed to (?:download and )?build `([^`]+)`"),
    (EndCode.DEPENDENCY_NOT_INSTALLABLE, r"Package '([^']+)' requires a different Python"),
    (EndCode.DEPENDENCY_NOT_INSTALLABLE, r"Because (\S+) requires Python "),
    (EndCode.DEPENDENCY_NOT_INSTALLABLE, r"Invalid requirement: '([^']+)'"),
    (EndCode.DEPENDENCY_NOT_INSTALLABLE, r"DO NOT MATCH THE HASHES [^\n]*\n\s+(\S+)"),
    (EndCode.DEPENDENCY_NOT_FOUND, r"No matching distribution found for (\S+)"),
    (EndCode.DEPENDENCY_NOT_FOUND, r"Because (\S+) was not found in "),
    (EndCode.DEPENDENCY_NOT_FOUND, r"Because there (?:is|are) no versions? of (\S+)"),
    (EndCode.DEPENDENCY_NOT_FOUND, r"(?:PackagesNotFoundError|ResolvePackageNotFound):[^-]*\s- (\S+)"),
    (EndCode.DEPENDENCY_NOT_FOUND, r"nothing provides requested (\S+)"),
    (EndCode.DEPENDENCY_CONFLICT, r"(?m)^[ \t]*(\S+) \S+ (?:requires \S+, which is not|has requirement )"),
    (EndCode.DEPENDENCY_CONFLICT, r"you require (\S+ and [^\s,]+)"),
)
"""What names its package in one place; the more particular first."""

Finding = tuple[EndCode, str | None]


def judge_setup(message: str) -> End:
    """`message` is Ray's. A code that is about a package has its name in `package`."""
    if _OURS in message:
        words = message.rpartition(_OURS)[2].partition("\n\n")[0].strip()[:MAX_MESSAGE]
        return End(end_class=EndClass.ENVIRONMENT, code=EndCode.NODE_NOT_PREPARED, params={"message": words})
    lines = (line[:_LINE_CHARACTERS] for line in message[-_READ_CHARACTERS:].splitlines())
    traceback, *printed = _OUTPUT.split("\n".join(lines))
    output = printed[-1] if printed else traceback
    told = {"message": _telling(output) if printed else _raised(output)}
    code, package = next((found for judge in _JUDGES if (found := judge(output))), (EndCode.RUNTIME_ENV_FAILED, None))
    params = told if package is None else {"package": package, **told}
    return End(end_class=EndClass.ENVIRONMENT, code=code, params=params)


def _without_package(output: str) -> Finding | None:
    if _NO_CONDA in output:
        return EndCode.CONDA_NOT_FOUND, None
    return (EndCode.RUNTIME_ENV_TIMEOUT, None) if _LATE.search(output) else None


def _unreachable(output: str) -> Finding | None:
    in_vain = "Retrying (Retry(" in output and "(from versions: none)" in output
    found = (in_vain and _WANTED.search(output)) or _FETCHED.search(output)
    return (EndCode.PACKAGE_INDEX_UNREACHABLE, found[1]) if found else None


def _conflict(output: str) -> Finding | None:
    if not _CONFLICT.search(output):
        return None
    parties = dict.fromkeys(asked or needing for asked, needing in _PARTIES.findall(output))
    return (EndCode.DEPENDENCY_CONFLICT, ", ".join(parties)) if parties else None


def _build(output: str) -> Finding | None:
    """What fails may lie deep below; it is the package that pip was at."""
    broken = _BUILD.search(output)
    if not broken:
        return None
    at = [collected or _name_of(file) for collected, file in _WORK.findall(output[: broken.start()])]
    return (EndCode.DEPENDENCY_NOT_INSTALLABLE, at[-1]) if at else None


def _name_of(file: str) -> str:
    """Of an archive or a wheel, with its version."""
    return _AFTER_THE_NAME.split(file.rpartition("/")[2])[0]


def _named(output: str) -> Finding | None:
    found = ((code, re.search(pattern, output)) for code, pattern in _ONE)
    return next(((code, match[1].strip("'\",.")) for code, match in found if match), None)


_JUDGES: tuple[Callable[[str], Finding | None], ...] = (_without_package, _unreachable, _conflict, _build, _named)


def _telling(output: str) -> str:
    """From the first line that speaks of an error on, without the names of files that are Ray's own."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    first = next((index for index, line in enumerate(lines) if _ERROR.search(line)), max(0, len(lines) - _MAX_LINES))
    text = "\n".join(lines[first : first + _MAX_LINES])
    return _FILE.sub(lambda found: found["line"] or "", _FROM_FILE.sub("", text)).strip()[-MAX_MESSAGE:]


def _raised(traceback: str) -> str:
    """What was raised last, without where."""
    starts = [found.start() for found in _RAISED.finditer(traceback)]
    return traceback[starts[-1] if starts else 0 :].strip()[-MAX_MESSAGE:]
