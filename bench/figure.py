"""A measured figure, the figure that it is compared with, and the table of a benchmark."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One quantity, with its value of every round.

    Attributes:
        what: what was measured.
        unit: the unit of the values.
        rounds: one value per round.
        limit: the figure that it is compared with: both ran in the same round.
        target: the target of the ratio to the limit, or of the value if there is no limit; None = no target.
    """

    what: str
    unit: str
    rounds: Sequence[float]
    limit: Figure | None = None
    target: Target | None = None

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rounds)

    @property
    def ratios(self) -> list[float]:
        """The value over the limit, round by round; empty without a limit."""
        if self.limit is None:
            return []
        return [value / limit for value, limit in zip(self.rounds, self.limit.rounds, strict=True)]

    @property
    def verdict(self) -> str:
        """Whether the target is met by the median; empty without a target."""
        if self.target is None:
            return ""
        value = self.median if not self.ratios or self.target.of_value else statistics.median(self.ratios)
        return "met" if self.target.permits(value) else "MISSED"

    def as_json(self) -> dict[str, Any]:
        """Return all its values."""
        return {
            "what": self.what,
            "unit": self.unit,
            "median": self.median,
            "rounds": list(self.rounds),
            "limit": self.limit.what if self.limit else None,
            "ratio": statistics.median(self.ratios) if self.ratios else None,
            "ratios": self.ratios,
            "target": str(self.target) if self.target else None,
            "verdict": self.verdict or None,
        }


@dataclass(frozen=True)
class Target:
    """A bound for a median.

    Attributes:
        bound: the last value that is permitted.
        at_least: whether more is better.
        of_value: whether it is about the value even if there is a limit.
    """

    bound: float
    at_least: bool = False
    of_value: bool = False

    def permits(self, value: float) -> bool:
        """Whether the value keeps the bound."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}"


@dataclass
class Report:
    """The results of one benchmark.

    Attributes:
        name: the name of the benchmark.
        about: one line about what was measured.
        figures: the figures in the order in which they are shown.
        notes: what a reader must know to read them.
    """

    name: str
    about: str
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {
            "name": self.name,
            "about": self.about,
            "figures": [figure.as_json() for figure in self.figures],
            "notes": self.notes,
        }

    def as_text(self) -> str:
        """Return a heading, a Markdown table and the notes."""
        header = ["measured", "median (min to max)", "ratio", "to", "target", ""]
        rows = table([header, *map(_cells, self.figures)])
        return "\n".join([f"## {self.name}", "", self.about, "", *rows, "", *self.notes])


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all values do not exceed: `percentile(v, 0.99)`."""
    in_order = sorted(values)
    return in_order[max(0, math.ceil(share * len(in_order)) - 1)]


def _cells(figure: Figure) -> list[str]:
    low, high = _show(min(figure.rounds)), _show(max(figure.rounds))
    value = f"{_show(figure.median)} ({low} to {high}) {figure.unit}".strip()
    ratio = f"{statistics.median(figure.ratios):.2f}" if figure.ratios else ""
    return [
        figure.what,
        value,
        ratio,
        figure.limit.what if figure.limit else "",
        str(figure.target or ""),
        figure.verdict,
    ]


def _show(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(rows: list[list[str]]) -> list[str]:
    """Return the lines of a Markdown table; the first row is its header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
