"""A sparkline: numbers over time in one line of text."""

from __future__ import annotations

from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Draw the latest numbers as bars, the highest one full; zero is a dot, nothing a blank. Fewer than the width stand at the right."""
    shown = list(values[-width:]) if width > 0 else []
    highest = max((value for value in shown if value), default=0.0)
    return "".join(_bar(value, highest) for value in shown).rjust(max(0, width))


def _bar(value: float | None, highest: float) -> str:
    if value is None:
        return " "
    return BARS[min(len(BARS) - 1, int(value / highest * len(BARS)))] if value > 0 else "·"
