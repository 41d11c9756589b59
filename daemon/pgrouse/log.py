"""How pgrouse logs: events by name with keys, for people on a terminal, as JSON lines everywhere else.

One handler writes everything, the standard library's loggers too. Passwords are hidden on the way; payloads are never logged.
Every line that is logged while a handler runs names its message.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, TextIO

import structlog
from psycopg.conninfo import make_conninfo
from structlog.typing import EventDict, Processor, WrappedLogger

from pgrouse.alerts.secret import SHORTEST_SECRET
from pgrouse.config import dsn
from pgrouse.config.config import Config, LogSettings
from pgrouse.handlers import current_attempt

# Libraries that say too much below WARNING: of every use of a connection, say.
VERBOSE_LIBRARIES = ("asyncio", "psycopg", "psycopg.pool", "watchfiles")
# Libraries that write addresses and requests of sinks at DEBUG, with the tokens in them.
LIBRARIES_LOGGING_SECRETS = ("apprise", "urllib3", "requests", "requests_oauthlib", "oauthlib")


def setup(config: Config, stream: TextIO | None = None) -> None:
    """Configure structlog and logging for this process; may be called again, after a reload say.

    Args:
        config: sections `log` (what and how) and `database` (passwords to hide).
        stream: where to write; the standard error unless given.
    """
    from pgrouse.alerts.sinks import read_sinks  # noqa: PLC0415 - slow to import: children do without it

    of_sinks = [secret for each in read_sinks(config) for secret in each.secrets()]
    of_databases = dsn.secrets(config.database.dsn, config.database.listen_dsn, config.web.dsn)
    named = [key.env for key in config.crypto.keys.values() if key.env]
    of_keys = [key for name in named if len(key := os.environ.get(name, "")) >= SHORTEST_SECRET]
    _configure(config.log, [*of_sinks, *of_databases, *_secrets_of_environment(), *of_keys], stream or sys.stderr)


def setup_child(settings: LogSettings) -> None:
    """Configure the logs of a handler's child process. It is not told the secrets of the daemon, and hides those that it can find out."""
    _configure(settings, _secrets_of_environment(), sys.stderr)


def _secrets_of_environment() -> list[str]:
    of_libpq = make_conninfo(password=os.environ.get("PGPASSWORD"))
    return dsn.secrets(of_libpq, os.environ.get("PGROUSE_DSN"), os.environ.get("DATABASE_URL"))


def _configure(settings: LogSettings, secrets: list[str], stream: TextIO) -> None:
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    hide = Redaction(secrets)
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _add_attempt,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,  # as text, before it is redacted; without the values of variables
        hide,
    ]
    structlog.configure(
        processors=[*common, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    _route_standard_library(level, stream, _formatter(settings, stream, common))


def _add_attempt(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add which message the running handler works, unless the event names a message itself."""
    if "message_id" in event or not (keys := current_attempt.log_keys()):
        return event
    return {**event, **{key: value for key, value in keys.items() if key not in event}}


def _formatter(settings: LogSettings, stream: TextIO, common: list[Processor]) -> logging.Formatter:
    as_console = settings.format == "console" or (settings.format == "auto" and stream.isatty())
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, *common],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _console(stream) if as_console else _json(),
        ],
    )


def _console(stream: TextIO) -> Processor:
    colors = bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and not os.environ.get("NO_COLOR"))
    return structlog.dev.ConsoleRenderer(
        colors=colors, exception_formatter=structlog.dev.plain_traceback, pad_event_to=22
    )


def _json() -> Processor:
    render = structlog.processors.JSONRenderer()

    def in_order(logger: WrappedLogger, method: str, event: EventDict) -> str | bytes:
        """When, how bad and what come first: people read JSON, too."""
        first = {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event}
        return render(logger, method, {**first, **event})

    return in_order


def _route_standard_library(level: int, stream: TextIO, formatter: logging.Formatter) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in (*VERBOSE_LIBRARIES, *LIBRARIES_LOGGING_SECRETS):
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    logging.captureWarnings(True)


class Redaction:
    """The processor that hides passwords in every text of an event."""

    def __init__(self, secrets: list[str]) -> None:
        self._secrets = secrets

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Return the event with its texts cleaned."""
        for key, value in event.items():
            if not key.startswith("_"):  # logging's own record
                event[key] = self._clean(value)
        return event

    def _clean(self, value: Any) -> Any:
        match value:
            case str():
                return dsn.redact(value, self._secrets)
            case dict():
                return {key: self._clean(inner) for key, inner in value.items()}
            case list() | tuple():
                return [self._clean(inner) for inner in value]
            case None | bool() | int() | float():
                return value
            case _:
                return dsn.redact(str(value), self._secrets)
