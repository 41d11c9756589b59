"""Formats numbers for people: short, and with their unit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from pgrouse.format import show_age

GAP = "\N{NO-BREAK SPACE}"
NOTHING = "\N{EN DASH}"
_LARGE = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_RATES = (("s", 1), ("min", 60), ("h", 3600), ("d", 86400))
_UNITS = {"s": "second", "min": "minute", "h": "hour", "d": "day"}


def count(number: int) -> str:
    """Write every digit: `1,234`."""
    return f"{number:,}"


def short(number: float) -> str:
    """Write three digits: `12.3 k`, `840`, `0.25`."""
    for size, unit in _LARGE:
        if abs(number) >= size * 0.9995:
            return f"{digits(number / size)}{GAP}{unit}"
    return digits(number)


def digits(number: float) -> str:
    """Write at most three digits, without zeros behind the point."""
    places = 0 if abs(number) >= 99.95 else 1 if abs(number) >= 9.995 else 2  # noqa: PLR2004 - where a fourth digit would begin
    written = f"{number:.{places}f}"
    return written.rstrip("0").rstrip(".") if "." in written else written


def rate(per_second: float) -> str:
    """Write a rate per second; per minute, hour or day if it is low: `12.3 k/s`, `4/min`."""
    return rates([per_second])[0]


def rates(per_second: Sequence[float]) -> list[str]:
    """Write rates that stand next to each other, all in the unit of the largest: `6.93/s`, `0.83/s`, `<0.01/s`."""
    unit, times = _rate(max(per_second, default=0.0))
    return [f"{_no_less(each * times)}/{unit}" if each else "0/s" for each in per_second]


def rate_unit(largest_per_second: float) -> tuple[str, int]:
    """Return the unit for rates of which this is the largest, and its seconds: `minute`, 60."""
    unit, times = _rate(largest_per_second)
    return _UNITS[unit], times


def _rate(largest: float) -> tuple[str, int]:
    return next(((u, t) for u, t in _RATES if largest * t >= 1), _RATES[-1])


def _no_less(number: float) -> str:
    return "<0.01" if number < 0.005 else short(number)  # noqa: PLR2004 - smaller numbers would show as zero


def duration(seconds: float | None) -> str:
    """Write a time in one unit: `1.2ms`, `4.2s`, `17m`."""
    return NOTHING if seconds is None else show_age(seconds)


def share(part: float | None) -> str:
    """Write a share in percent; a value close to 0 or 100 % never looks like exactly that: `<0.01 %`."""
    if part is None:
        return NOTHING
    percent = part * 100
    if 0 < percent < 0.01:  # noqa: PLR2004
        return f"<0.01{GAP}%"
    if 99.99 < percent < 100:  # noqa: PLR2004
        return f">99.99{GAP}%"
    places = 2 if percent < 1 or percent > 99 else 1  # noqa: PLR2004
    return f"{percent:.{places}f}".rstrip("0").rstrip(".") + f"{GAP}%"


def hours(seconds: float) -> str:
    """Write a sum of times in hours, so that the values of a column can be compared: `4,120 h`, `0.25 h`, `<0.01 h`."""
    number = seconds / 3600
    if 0 < number < 0.005:  # noqa: PLR2004 - smaller numbers would show as zero
        return f"<0.01{GAP}h"
    return f"{number:,.0f}{GAP}h" if number >= 999.5 else f"{digits(number)}{GAP}h"  # noqa: PLR2004 - the fourth digit


def times(factor: float) -> str:
    """Write a factor: `2.4 x`."""
    return f"{short(factor)}{GAP}\N{MULTIPLICATION SIGN}"


def moment(at: datetime) -> str:
    """Write a point in time, in UTC: `2026-11-22 10:00:05`; without seconds if they are zero."""
    at = at.astimezone(UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S" if at.second else "%Y-%m-%d %H:%M")
