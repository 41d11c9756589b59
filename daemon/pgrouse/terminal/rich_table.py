"""Tables on a terminal, by rich."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from rich.console import Console, Group, JustifyMethod, OverflowMethod
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pgrouse.terminal.table import Column, Row
from pgrouse.values.format import harmless

GAP = 2
NARROWEST = 5


def print_table(columns: list[Column], rows: Sequence[Row]) -> None:
    """Print rows as a table that fits the terminal."""
    console = Console(highlight=False)
    console.print(rich_table(columns, rows, console.width))


class WatchTable:
    """A table that is shown again and again in the same place."""

    def __init__(self, columns: list[Column]) -> None:
        self._columns = columns
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, rows: Sequence[Row], remarks: Sequence[str], problems: Sequence[str] = ()) -> None:
        """Show these rows, problems above them, and remarks below them."""
        table = rich_table(self._columns, rows, self._console.width)
        above = [Text(harmless(each), style="bold red") for each in problems]
        self._live.update(Group(*above, table, Text(), *(Text(each, style="dim") for each in remarks)), refresh=True)


def rich_table(columns: list[Column], rows: Sequence[Row], terminal: int) -> Table:
    """Return rows as a table that fits a terminal of this width in characters.

    Wide columns are cut or folded, the others are not.
    """
    columns = _fitting(columns, rows, terminal)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for column, width in zip(columns, _widths(columns, rows, terminal), strict=True):
        justify: JustifyMethod = "right" if column.right else "left"
        overflow: OverflowMethod = "fold" if column.folds else "ellipsis"
        table.add_column(column.title, justify=justify, no_wrap=not column.folds, overflow=overflow, width=width)
    for row in rows:
        table.add_row(*(_cell(column, row) for column in columns))
    return table


def _cell(column: Column, row: Row) -> Text:
    value = row[column.key]
    return Text(column.text(row), style="dim" if value is None else column.style(value))


def _fitting(columns: list[Column], rows: Sequence[Row], terminal: int) -> list[Column]:
    """Leave out spare columns, the first ones first, until the others fit."""
    kept = list(columns)
    for column in [each for each in columns if each.spare]:
        widths = zip(kept, _lengths(kept, rows), strict=True)
        least = sum(min(width, NARROWEST) if each.wide else width for each, width in widths)
        if least + GAP * (len(kept) - 1) <= terminal:
            break
        kept.remove(column)
    return kept


def _lengths(columns: list[Column], rows: Sequence[Row]) -> list[int]:
    return [max(len(column.title), *(len(column.text(row)) for row in rows)) for column in columns]


def _widths(columns: list[Column], rows: Sequence[Row], terminal: int) -> list[int]:
    """Return how wide each column is: as its longest text, unless the table is too wide.

    Then the widest of the wide columns are narrowed; rich would cut all alike.
    """
    widths = _lengths(columns, rows)
    wide = [i for i, column in enumerate(columns) if column.wide]
    while wide and sum(widths) + GAP * (len(widths) - 1) > terminal:
        widest = max(wide, key=lambda i: widths[i])
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    return widths
