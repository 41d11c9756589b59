"""The screen on a terminal, drawn with rich: the lines scroll, with a progress bar below them."""

from __future__ import annotations

from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pgrouse.demo.screen import LABEL_WIDTH, Gauge
from pgrouse.format import harmless

# Lines longer than this are hard to read, however wide the terminal is.
WIDEST = 110
STYLES = {"SUCCESS": "green", "REJECTED": "red", "FAILED": "red", "LOCK_EXPIRED": "red", "WAITING": "yellow"}


class LiveScreen:
    """A terminal. The caller draws it, not a separate thread: a measurement must not wait for a drawing."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False)
        if self._console.width > WIDEST:
            self._console = Console(file=stream, highlight=False, width=WIDEST)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._shown: Gauge | None = None

    def __enter__(self) -> Self:
        self._console.print()
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def tell(self, label: str, text: str, style: str = "") -> None:
        """Print a line above the bar; a long text continues below its own beginning."""
        self._print(Text(label, style="bold cyan"), Text(harmless(text), style=style))

    def quote(self, text: str) -> None:
        """Print a line unchanged. The terminal wraps a long line, without a line break that would be copied."""
        self._console.print(" " * LABEL_WIDTH + harmless(text), soft_wrap=True, markup=False)

    def show(self, gauge: Gauge) -> None:
        """Draw the bar, if it has changed."""
        if gauge != self._shown:
            self._shown = gauge
            self._live.update(_bar(gauge), refresh=True)

    def table(self, rows: list[list[str]]) -> None:
        """Print the results; the bar is no longer needed."""
        self._live.stop()
        table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
        for title in rows[0]:
            table.add_column(title, justify="right" if table.columns else "left", no_wrap=True)
        for row in rows[1:]:
            table.add_row(*(_cell(title, text) for title, text in zip(rows[0], row, strict=True)))
        self._console.print(Padding(table, (1, 0)))

    def check(self, ok: bool, text: str) -> None:
        """Print a mark and the text of the check."""
        mark = Text("✓", style="bold green") if ok else Text("✗", style="bold red")
        self._print(mark, Text(harmless(text), style="" if ok else "bold red"))

    def _print(self, label: Text, text: Text) -> None:
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_column(width=LABEL_WIDTH - 2, justify="right")
        line.add_column()
        line.add_row(label, text)
        self._console.print(line)


def _cell(title: str, text: str) -> Text:
    return Text(text, style="dim" if text == "-" else STYLES.get(title, ""))


def _bar(gauge: Gauge) -> Padding:
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_row(ProgressBar(total=max(gauge.total, 1), completed=gauge.done, width=30), _numbers(gauge))
    return Padding(Group(row, Text(gauge.doing, style="dim italic")), (1, 0, 0, LABEL_WIDTH))


def _numbers(gauge: Gauge) -> Text:
    text = Text(f"{gauge.done:,}/{gauge.total:,} done  {gauge.per_s:,.0f}/s  ")
    return text.append(f"{gauge.dead:,} dead", style="red" if gauge.dead else "dim")
