"""Tables on a terminal, by rich."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import JustifyMethod, OverflowMethod
from rich.table import Table
from rich.text import Text

from pgrouse.cli.output import Column, Row

GAP = 2
NARROWEST = 5


def rich_table(columns: list[Column], rows: Sequence[Row], terminal: int) -> Table:
    """Return rows as a table that fits a terminal of so many characters: wide columns are cut or folded, the others are not."""
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
    """Return how wide each column is: as its longest text, but the widest of the wide ones give way; rich would cut all alike."""
    widths = _lengths(columns, rows)
    wide = [i for i, column in enumerate(columns) if column.wide]
    while wide and sum(widths) + GAP * (len(widths) - 1) > terminal:
        widest = max(wide, key=lambda i: widths[i])
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    return widths
