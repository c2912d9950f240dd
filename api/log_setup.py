"""The service's own log: one event a line, with ids, never with the values of variables: those may be secrets."""

import io
import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import ExcInfo

from api.settings import Settings


def set_up_log(settings: Settings) -> None:
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    plain = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), repr_native_str=True, exception_formatter=_traceback, pad_event_to=24
    )
    as_json = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(as_json if settings.log_format == "json" else [plain]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    others = logging.StreamHandler()
    others.setFormatter(_OneOfOthers("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[others])


class _OneOfOthers(logging.Formatter):
    """A line of a library's."""

    def format(self, record: logging.LogRecord) -> str:
        return _harmless(super().format(record))


def _traceback(out: TextIO, error: ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, error)
    out.write(_harmless(text.getvalue()))


def _harmless(text: str) -> str:
    """Without control characters: what came from outside must not steer the terminal of whoever reads the log."""
    return "".join(one if one.isprintable() or one in "\n\t" else repr(one)[1:-1] for one in text)
