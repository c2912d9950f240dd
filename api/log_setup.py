"""The service's own log: one event a line, with ids, never with the values of variables: those may be secrets."""

import logging
import sys

import structlog

from api.settings import Settings


def set_up_log(settings: Settings) -> None:
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    plain = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=24
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
    logging.basicConfig(level=max(level, logging.WARNING), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
