"""The log of pgrouse: named events with keys, formatted for people on a terminal, and as JSON lines everywhere else.

One handler writes everything, also the events of the standard library's loggers. Passwords are hidden; payloads are
never logged. Every line that is logged while a handler runs names its message.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TextIO

import structlog
from psycopg.conninfo import make_conninfo
from structlog.typing import EventDict, Processor, WrappedLogger

from pgrouse.alerts.secret import SHORTEST_SECRET
from pgrouse.config import dsn
from pgrouse.config.config import Config, LogSettings
from pgrouse.database.database_errors import silence_driver
from pgrouse.handlers.attempt import current_attempt
from pgrouse.logging.log_event import PlainEvent, show

# Libraries that log too much below WARNING, for example every use of a connection.
VERBOSE_LIBRARIES = ("asyncio", "uvicorn", "watchfiles")
# The address in the repr of an object.
ADDRESS = re.compile(r" at 0x[0-9a-f]+", re.IGNORECASE)
# Libraries that log the addresses and requests of sinks at DEBUG, with the tokens in them.
LIBRARIES_LOGGING_SECRETS = ("apprise", "urllib3", "requests", "requests_oauthlib", "oauthlib")
LEVELS = ("debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log", "msg")
# Keys whose text has several lines on a terminal.
BELOW_THE_LINE = ("exception", "stack")
# Keys that a line of an attempt does not repeat: they are in its beginning, or known of the attempt.
OF_EVERY_LINE = ("event", "level", "timestamp", "logger", "_record", "_from_structlog")
OF_THE_ATTEMPT = ("message_id", "topic", "attempt", "trace_id", "span_id")
NOT_IN_LINES = frozenset([*OF_EVERY_LINE, *OF_THE_ATTEMPT, *BELOW_THE_LINE])


def setup(config: Config, stream: TextIO | None = None) -> None:
    """Configure structlog and logging for this process. It may be called again, for example after a reload.

    Args:
        config: sections `log` (what and how) and `database` (passwords to hide).
        stream: where to write; by default the standard error.
    """
    _configure(config.log, secrets_of(config), stream or sys.stderr)


def secrets_of(config: Config) -> list[str]:
    """Return what no log line may contain: the passwords, tokens and keys of a configuration."""
    from pgrouse.alerts.sinks import read_sinks  # noqa: PLC0415 - slow to import: children do without it

    of_sinks = [secret for each in read_sinks(config) for secret in each.secrets()]
    of_databases = dsn.secrets(config.database.dsn, config.database.listen_dsn, config.web.dsn)
    named = [key.env for key in config.crypto.keys.values() if key.env]
    of_keys = [key for name in named if len(key := os.environ.get(name, "")) >= SHORTEST_SECRET]
    return [*of_sinks, *of_databases, *secrets_of_environment(), *of_keys]


def setup_child(settings: LogSettings) -> None:
    """Configure the logs of a handler's child process.

    It does not get the daemon's secrets, and hides those that it can find out.
    """
    _configure(settings, secrets_of_environment(), sys.stderr)


def secrets_of_environment() -> list[str]:
    """Return the passwords in the variables of the environment."""
    of_libpq = make_conninfo(password=os.environ.get("PGPASSWORD"))
    return dsn.secrets(of_libpq, os.environ.get("PGROUSE_DSN"), os.environ.get("DATABASE_URL"))


def _configure(settings: LogSettings, secrets: list[str], stream: TextIO | None) -> None:
    stream = stream or open(os.devnull, "w")  # noqa: SIM115, PTH123 - where there is no standard error
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _add_attempt,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        # Format it as text before secrets are hidden in it; without the values of variables.
        structlog.processors.ExceptionRenderer(_format_error),
        PlainEvent(secrets),
    ]
    structlog.configure(
        processors=[*common, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=_never_raising(structlog.make_filtering_bound_logger(level)),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    _route_standard_library(level, stream, _formatter(settings, stream, common))


def _add_attempt(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the message that the running handler processes, unless the event names a message."""
    if "message_id" in event or not (keys := current_attempt.log_keys()):
        return event
    return {**event, **{key: value for key, value in keys.items() if key not in event}}


def _remove_addresses(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Remove the addresses of objects from the text of a library, so that the same event always has the same text."""
    return {**event, "event": ADDRESS.sub("", str(event["event"]))}


def _formatter(settings: LogSettings, stream: TextIO, common: list[Processor]) -> logging.Formatter:
    as_console = settings.format == "console" or (settings.format == "auto" and stream.isatty())
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, _remove_addresses, *common],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _console(stream) if as_console else _json(),
        ],
    )


def lines_formatter(secrets: list[str]) -> logging.Formatter:
    """Return the formatter of lines that are kept with an attempt: time, level, logger, text, values, traceback."""
    render_error = structlog.processors.ExceptionRenderer(_format_error)
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[_remove_addresses],
        processors=[render_error, PlainEvent(secrets), _to_line],
    )


def _to_line(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    record: logging.LogRecord = event["_record"]
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    values = [f"{name}={_shown(value)}" for name, value in event.items() if name not in NOT_IN_LINES]
    below = [str(event[name]) for name in BELOW_THE_LINE if event.get(name)]
    text = "\n".join([" ".join([str(event.get("event", "")), *values]), *below])
    # Only the first line begins at the margin: no text looks like the next event.
    line = str(_printable("exception", f"{at} {record.levelname} {record.name}: {text}"))
    return line.replace("\n", "\n    ")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value and not any(map(str.isspace, value)) else repr(value)


def _console(stream: TextIO) -> Processor:
    colors = bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and not os.environ.get("NO_COLOR"))
    render = structlog.dev.ConsoleRenderer(
        colors=colors, exception_formatter=structlog.dev.plain_traceback, pad_event_to=22
    )

    def on_one_line(logger: WrappedLogger, method: str, event: EventDict) -> str:
        """Keep a value from ending the line and from controlling the terminal; put a traceback below the line."""
        return render(logger, method, {key: _printable(key, value) for key, value in event.items()})

    return on_one_line


def _printable(key: str, value: Any) -> Any:
    if not isinstance(value, str) or value.isprintable():
        return value
    kept = "\n\t" if key in BELOW_THE_LINE else ""
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode() for each in value
    )


def _json() -> Processor:
    render = structlog.processors.JSONRenderer()

    def in_order(logger: WrappedLogger, method: str, event: EventDict) -> str | bytes:
        """Put time, level and event first, because people also read JSON."""
        first = {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event}
        return render(logger, method, {**first, **event})

    return in_order


def _route_standard_library(level: int, stream: TextIO, formatter: logging.Formatter) -> None:
    handler = LogHandler(stream)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in (*VERBOSE_LIBRARIES, *LIBRARIES_LOGGING_SECRETS):
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    silence_driver()
    logging.captureWarnings(True)


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes each record as one event, even one that cannot be formatted.

    It never raises, and never prints its own errors.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record."""
        with suppress(
            Exception
        ):  # the stream is closed or full, or the stack is full: this cannot be reported anywhere
            self.stream.write(self._event(record) + self.terminator)
            self.flush()

    def _event(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - the arguments of a message may do anything
            text = f"{show(record.msg)} (its arguments cannot be shown: {type(error).__name__})"
            plain = {**vars(record), "msg": text, "args": None, "exc_info": None, "exc_text": None, "stack_info": None}
            return self.format(logging.makeLogRecord(plain))


def _never_raising(base: Any) -> Any:
    """Return a class of loggers whose methods never raise: a log line must not make an attempt fail."""

    def without_errors(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def log(self: Any, event: Any = None, *args: Any, **values: Any) -> Any:
            try:
                return method(self, event, *args, **values)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - arguments that do not fit the text, or no room on the stack
                with suppress(Exception):
                    text = show([event, *args] if args else event)
                    shown = f"{text} (it cannot be shown: {type(error).__name__})"
                    logging.getLogger("pgrouse").log(logging.ERROR, shown)

        return log

    levels = {name: without_errors(getattr(base, name)) for name in LEVELS}
    return type("Logger", (base,), levels)


def _format_error(exc_info: Any) -> str:
    """Return the traceback of an error.

    If it cannot be formatted, for example because of a long chain of causes, return the error's text.
    """
    try:
        return "".join(traceback.format_exception(*exc_info)).removesuffix("\n")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - an exception's own methods may do anything
        return f"{show(exc_info[1])} (its traceback cannot be shown: {type(error).__name__})"
