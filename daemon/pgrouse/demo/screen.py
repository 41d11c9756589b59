"""The output of the demo: line by line, and on a terminal the progress below the lines."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Protocol, Self, TextIO

from pgrouse.extras import has_rich
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
        doing: what the demo waits for.
    """

    done: int
    total: int
    per_s: float
    dead: int
    doing: str


class Screen(Protocol):
    """The place where the demo shows what it does."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(self, *_: object) -> None:
        """Restore the terminal."""

    def tell(self, label: str, text: str, style: str = "") -> None:
        """Print a line. style: a style of rich, where there are colours."""

    def quote(self, text: str) -> None:
        """Print a line that users may want to copy: it is never broken."""

    def show(self, gauge: Gauge) -> None:
        """Show the progress; called many times per second."""

    def table(self, rows: list[list[str]]) -> None:
        """Show the results: a row of titles, then the rows. The first value of a row is aligned left, numbers right."""

    def check(self, ok: bool, text: str) -> None:
        """Show one check."""


class PlainScreen:
    """Plain lines, for pipes and logs: nothing is cut, nothing moves."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._gauge_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def tell(self, label: str, text: str, style: str = "") -> None:
        """Write one line."""
        self._write(f"{label:<{LABEL_WIDTH}}{harmless(text)}")

    def quote(self, text: str) -> None:
        """Write one line."""
        self.tell("", text)

    def show(self, gauge: Gauge) -> None:
        """Print the progress from time to time."""
        now = time.monotonic()
        if now - self._gauge_at >= GAUGE_EVERY_S and gauge.total:
            self._gauge_at = now
            self.tell("...", f"{gauge.done:,}/{gauge.total:,} done, {gauge.per_s:,.0f}/s, {gauge.dead:,} dead")

    def table(self, rows: list[list[str]]) -> None:
        """Write aligned columns."""
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


def choose(stream: TextIO) -> Screen:
    """Return a live screen for a terminal that can have one, otherwise plain lines.

    Plain lines are also used if CI or NO_COLOR is set.
    """
    plain = not stream.isatty() or any(os.environ.get(name) for name in ("CI", "NO_COLOR")) or not has_rich()
    if plain or os.environ.get("TERM", "dumb") == "dumb" or "utf" not in (stream.encoding or "").lower():
        return PlainScreen(stream)
    from pgrouse.demo.live import LiveScreen  # noqa: PLC0415 - extra rich

    return LiveScreen(stream)
