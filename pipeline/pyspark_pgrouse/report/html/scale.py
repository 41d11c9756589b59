"""From values to places on an axis, and where its ticks are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from pyspark_pgrouse.report.html.formatting import GAP
from pyspark_pgrouse.report.window import STEPS_S

MOST_TICKS = 8
DAY_S = 86400


class Scale(Protocol):
    """Where values lie between 0 (the bottom) and 1 (the top)."""

    def at(self, value: float) -> float:
        """Return the place of a value."""

    def ticks(self) -> list[float]:
        """Return the values that are written at the axis."""


@dataclass(frozen=True)
class Linear:
    """From zero to `top`."""

    top: float
    step: float

    @classmethod
    def over(cls, most: float, whole: bool = False) -> Linear:
        """Return a scale with about four steps of 1, 2 or 5. whole: there is nothing between whole numbers."""
        step = nice(most / 4 if most > 0 else 0.25)
        step = max(step, 1.0) if whole else step
        return cls(step * max(1, math.ceil(most / step - 1e-9)), step)

    def at(self, value: float) -> float:
        """Return the place of a value."""
        return value / self.top

    def ticks(self) -> list[float]:
        """Return zero and each step."""
        return [self.step * i for i in range(round(self.top / self.step) + 1)]


@dataclass(frozen=True)
class Log:
    """From `low` to `high`, both powers of ten: times are as often far apart as they are near."""

    low: int
    high: int

    @classmethod
    def over(cls, least: float, most: float) -> Log:
        """Return the powers of ten around the values; at least one apart."""
        low = math.floor(math.log10(max(least, 1e-6)) + 1e-9)
        high = math.ceil(math.log10(max(most, 1e-6)) - 1e-9)
        return cls(low, max(high, low + 1))

    def at(self, value: float) -> float:
        """Return the place of a value; what is too small lies at the bottom."""
        place = (math.log10(max(value, 1e-9)) - self.low) / (self.high - self.low)
        return min(max(place, 0.0), 1.0)

    def ticks(self) -> list[float]:
        """Return the powers of ten; between two of them 2 and 5 times the power, if there is room."""
        decades = self.high - self.low
        factors = (1, 2, 5) if decades == 1 else (1,)
        every = math.ceil(decades / 6)
        powers = range(self.low, self.high + 1, every)
        return [f * 10.0**p for p in powers for f in factors if f * 10.0**p <= 10.0**self.high * 1.001]


def nice(step: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step) + 1e-9)
    return next(f * power for f in (1, 2, 5, 10) if f * power >= step * (1 - 1e-9))


def time_ticks(begin: datetime, end: datetime) -> list[tuple[datetime, str]]:
    """Return at most eight moments on an axis of time, and how each is written: the day where one begins, else the hour."""
    seconds = (end - begin).total_seconds()
    steps = [*STEPS_S, *(DAY_S * n for n in (2, 7, 14, 30, 90, 365, 3650))]
    step = next((s for s in steps if seconds / s <= MOST_TICKS), steps[-1])
    first = math.ceil(begin.timestamp() / step) * step
    moments = [datetime.fromtimestamp(t, UTC) for t in range(first, math.ceil(end.timestamp()), step)]
    return [(at, _written(at, step)) for at in moments]


def _written(at: datetime, step: int) -> str:
    if step >= DAY_S or at - timedelta(hours=at.hour, minutes=at.minute, seconds=at.second) == at:
        return f"{at.day}{GAP}{at:%b}"
    return f"{at:%H:%M:%S}" if step < 60 else f"{at:%H:%M}"  # noqa: PLR2004
