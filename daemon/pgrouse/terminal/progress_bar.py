"""A progress bar on the standard error, by rich."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class ProgressBar:
    """A bar for one piece of work. total: how much there is to do, as far as that is known."""

    def __init__(self, title: str, total: int) -> None:
        parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*parts, console=Console(stderr=True), transient=True)
        self._total = total
        self._task = self._progress.add_task(title, total=total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def expect(self, messages: int) -> None:
        """Take note that there is so much more to do."""
        self._total += messages
        self._progress.update(self._task, total=self._total)

    def advance(self, messages: int) -> None:
        """Move on."""
        self._progress.advance(self._task, messages)
