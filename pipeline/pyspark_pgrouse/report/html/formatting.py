"""Formats numbers and names for people: numbers are short, and have their unit; no text breaks the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from pgrouse.values.format import show_age

GAP = "\N{NO-BREAK SPACE}"
NOTHING = "\N{EN DASH}"
NOTICEABLE = 0.1  # a change by less is not called better or worse
SAME = Markup('<span class="same">\N{ALMOST EQUAL TO} same</span>')
# A page must not have these, and they carry no meaning: C0 and C1 controls except tab and line feed, halves of
# surrogate pairs. Characters that change the direction of text would let an error rearrange the line around it.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
# The places where a name may be broken: after its separators, but not within a number.
_JOINT = re.compile(r"[._/-]+(?=[^\W\d])|=(?=.)")
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
    # A fourth digit would begin at these numbers.
    places = 0 if abs(number) >= 99.95 else 1 if abs(number) >= 9.995 else 2  # noqa: PLR2004
    written = f"{number:.{places}f}"
    return written.rstrip("0").rstrip(".") if "." in written else written


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


def fit(value: Any) -> Any:
    """Return what a template writes: markup as it is, any other text without characters that a page must not have."""
    if value is None or isinstance(value, Markup):
        return value or ""
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", str(value))


def named(name: str) -> Markup:
    """Return the name of something, which may be broken into lines where its parts end."""
    text = escape(fit(name))
    broken = Markup(_JOINT.sub(r"\g<0><wbr>", str(text)))  # noqa: S704 - it is escaped
    return Markup('<span class="name" title="{}">{}</span>').format(text, broken)


def trend(before: float | None, after: float | None) -> Markup | None:
    """Return the change of a number that should be low, with a sign: some readers cannot use the colour alone."""
    if before is None or after is None or before == after == 0:
        return None
    if not before:
        return Markup('<span class="worse">\N{BLACK UP-POINTING TRIANGLE} from 0</span>')
    part = after / before - 1
    if abs(part) < NOTICEABLE:
        return SAME
    colour, sign = (
        ("worse", "\N{BLACK UP-POINTING TRIANGLE}") if part > 0 else ("better", "\N{BLACK DOWN-POINTING TRIANGLE}")
    )
    return Markup('<span class="{}">{} {}</span>').format(
        colour, sign, times(after / before) if part > 1 else f"{abs(part):.0%}"
    )


def width(part: float) -> str:
    """Write the width of a bar for a share of the widest one, in percent."""
    return f"{max(0.0, min(1.0, part)) * 100:.3g}"
