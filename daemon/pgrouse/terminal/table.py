"""Tables of commands: their columns, and their form in pipes and logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pgrouse.values.format import harmless

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        title: its heading.
        key: which value of a row it shows.
        show: formats a value; None is always a dash.
        right: whether it is right-aligned, as numbers are.
        wide: whether it is cut when the terminal is narrow.
        folds: whether it is wrapped instead of cut.
        spare: whether it is left out when the terminal is too narrow for all.
        style: a style of rich for a value, on terminals only.
        optional: whether the column is left out when no row has a value for it.
    """

    title: str
    key: str
    show: Callable[[Any], str] = str
    right: bool = False
    wide: bool = False
    folds: bool = False
    spare: bool = False
    style: Callable[[Any], str] = lambda _: ""
    optional: bool = False

    def text(self, row: Row) -> str:
        """Write the row's value on one line."""
        value = row[self.key]
        return "-" if value is None else harmless(self.show(value)).replace("\n", " ")


def plain_table(columns: list[Column], rows: Iterable[Row]) -> str:
    """Write rows as aligned lines, nothing cut: for pipes and logs."""
    lines = [[column.title for column in columns]] + [[column.text(row) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "\n".join(
        "  ".join(
            cell.rjust(w) if c.right else cell.ljust(w) for cell, c, w in zip(line, columns, widths, strict=True)
        ).rstrip()
        for line in lines
    )
