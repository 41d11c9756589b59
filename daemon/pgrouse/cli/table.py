"""Tables on a terminal, by rich."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from pgrouse.cli.output import Column, Row

GAP = 2
NARROWEST = 5


def rich_table(columns: list[Column], rows: Sequence[Row], terminal: int) -> Table:
    """Return rows as a table that fits a terminal of so many characters: wide columns are cut, the others are not."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for column, width in zip(columns, _widths(columns, rows, terminal), strict=True):
        justify: JustifyMethod = "right" if column.right else "left"
        table.add_column(column.title, justify=justify, no_wrap=True, overflow="ellipsis", width=width)
    for row in rows:
        table.add_row(*(_cell(column, row) for column in columns))
    return table


def _cell(column: Column, row: Row) -> Text:
    value = row[column.key]
    return Text(column.text(row), style="dim" if value is None else column.style(value))


def _widths(columns: list[Column], rows: Sequence[Row], terminal: int) -> list[int]:
    """Return how wide each column is: as its longest text, but the widest of the wide ones give way; rich would cut all alike."""
    widths = [max(len(column.title), *(len(column.text(row)) for row in rows)) for column in columns]
    wide = [i for i, column in enumerate(columns) if column.wide]
    while wide and sum(widths) + GAP * (len(widths) - 1) > terminal:
        widest = max(wide, key=lambda i: widths[i])
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    return widths
