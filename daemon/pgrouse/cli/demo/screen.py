"""The output of the demo, line by line."""

from __future__ import annotations

import time
from typing import TextIO

from pgrouse.values.format import harmless

LABEL_WIDTH = 10
PROGRESS_EVERY_S = 2.0


class Screen:
    """Where the demo shows what it does: plain lines, none of them cut."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._progress_at = 0.0

    def tell(self, label: str, text: str) -> None:
        """Write one line."""
        self._write(f"{label:<{LABEL_WIDTH}}{harmless(text)}")

    def quote(self, text: str) -> None:
        """Write a line that users may want to copy."""
        self.tell("", text)

    def show_progress(self, done: int, total: int, per_s: float, dead: int) -> None:
        """Print from time to time how many messages have ended, of how many, how fast, and how many of them died."""
        now = time.monotonic()
        if now - self._progress_at >= PROGRESS_EVERY_S and total:
            self._progress_at = now
            self.tell("...", f"{done:,}/{total:,} done, {per_s:,.0f}/s, {dead:,} dead")

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
        self.tell("ok" if ok else "WRONG", text)

    def _write(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()
