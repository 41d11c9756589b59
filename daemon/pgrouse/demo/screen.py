"""The output of the demo, line by line."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TextIO

from pgrouse.format import harmless

LABEL_WIDTH = 10
GAUGE_EVERY_S = 2.0


@dataclass(frozen=True)
class Gauge:
    """The progress of the demo.

    Attributes:
        done: messages that have ended.
        total: messages published.
        per_s: messages that ended in the last second.
        dead: of those done, the dead ones.
    """

    done: int
    total: int
    per_s: float
    dead: int


class Screen:
    """Where the demo shows what it does: plain lines, none of them cut."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._gauge_at = 0.0

    def tell(self, label: str, text: str) -> None:
        """Write one line."""
        self._write(f"{label:<{LABEL_WIDTH}}{harmless(text)}")

    def quote(self, text: str) -> None:
        """Write a line that users may want to copy."""
        self.tell("", text)

    def show(self, gauge: Gauge) -> None:
        """Print the progress from time to time."""
        now = time.monotonic()
        if now - self._gauge_at >= GAUGE_EVERY_S and gauge.total:
            self._gauge_at = now
            self.tell("...", f"{gauge.done:,}/{gauge.total:,} done, {gauge.per_s:,.0f}/s, {gauge.dead:,} dead")

    def table(self, rows: list[list[str]]) -> None:
        """Write the results in columns: a row of titles, then the rows. Only the first column is aligned left."""
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        self._write("")
        for first, *numbers in rows:
            cells = (cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True))
            self._write("  ".join([first.ljust(widths[0]), *cells]))
        self._write("")

    def check(self, ok: bool, text: str) -> None:
        """Write `ok` or `WRONG` in front of it."""
        self._write(f"{'ok' if ok else 'WRONG':<{LABEL_WIDTH}}{harmless(text)}")

    def _write(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()
