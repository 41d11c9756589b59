"""Captures the log lines of attempts whose topic keeps them: those of `logging`, and of structlog through it.

It adds one handler to the root logger while the worker runs, and changes nothing else of the logging of the process:
levels and filters decide which lines there are. A line that no such attempt logs costs a look at a context variable.
"""

from __future__ import annotations

import logging
from typing import TextIO, cast

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import LoggedLines
from pgrouse.handlers.attempt.log_lines import LogLines, current_lines, set_lines
from pgrouse.logging.log import LogHandler, lines_formatter


class LogCapture:
    """The log lines of one worker's attempts.

    Args:
        secrets: hidden in every line.
    """

    def __init__(self, secrets: list[str]) -> None:
        self._handler = LogHandler(cast("TextIO", _CurrentLines()))
        self._handler.setFormatter(lines_formatter(secrets))
        self._handler.addFilter(self._is_of_attempt)

    def start(self) -> None:
        """Capture from now on."""
        logging.getLogger().addHandler(self._handler)

    def stop(self) -> None:
        """Capture no more."""
        logging.getLogger().removeHandler(self._handler)

    def begin(self, limit_bytes: int) -> None:
        """An attempt begins in this context, and keeps this many bytes."""
        set_lines(LogLines(limit_bytes, self))

    def _is_of_attempt(self, _record: logging.LogRecord) -> bool:
        lines = current_lines()
        return lines is not None and lines.owner is self


class _CurrentLines:
    """What LogHandler writes to: the lines of the attempt in whose context it is called."""

    def write(self, text: str) -> None:
        if (lines := current_lines()) is not None:
            lines.add(text.removesuffix("\n"))

    def flush(self) -> None:
        """Do nothing: everything is written."""


def end_lines(lines: LogLines | None, message: Message) -> LoggedLines | None:
    """Close the lines of an attempt, and return them with its message; None = there are none."""
    closed = None if lines is None else lines.close()
    return None if closed is None else LoggedLines(message, *closed)
