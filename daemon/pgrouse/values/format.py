"""Formats values for people: numbers, ages, small charts, and text from messages without control characters."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

# C0 and C1 controls except line feed and tab, characters that are invisible or change the direction of text, halves of
# surrogate pairs.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

MICROSECOND = 1e-6
# A unit, its seconds, and the number below which it is used.
UNITS = (
    ("us", MICROSECOND, 1000),
    ("ms", 1e-3, 1000),
    ("s", 1, 120),
    ("m", 60, 120),
    ("h", 3600, 48),
    ("d", 86400, math.inf),
)
BARS = "▁▂▃▄▅▆▇█"


def harmless(text: str) -> str:
    """Return the text with control characters (colours, cursor movements, bells) written out; lines and tabs stay."""
    return _HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def show_count(bound: int) -> Callable[[int], str]:
    """Return a function that writes a count that stops at a bound: `10,000+`."""
    return lambda count: f"{count:,}" + ("+" if count >= bound else "")


def show_estimate(count: int, *, is_estimate: bool) -> str:
    """Write a count, or an estimate with two digits: `9,999`, `≈ 52,000`, `≈ 520k`, `≈ 1.2M`."""
    if not is_estimate:
        return f"{count:,}"
    rounded = round(count, 2 - len(str(count)))
    for unit, size, least in (("G", 10**9, 10**9), ("M", 10**6, 10**6), ("k", 10**3, 10**5)):
        if rounded >= least:
            return f"≈ {rounded / size:.1f}".removesuffix(".0") + unit
    return f"≈ {rounded:,}"


def plural(count: int, noun: str) -> str:
    """Write a number with its noun: `1 message`, `1,200 messages`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


class ShownProgress(NamedTuple):
    """The progress of a message on one line; percent: None = not known."""

    text: str
    percent: float | None = None


def show_progress(reported: str | None) -> ShownProgress | None:
    """Write what `ctx.progress` reported, as JSON: `30 of 100 rows (30 %)`.

    What a handler wrote in another form stays as it is.
    """
    if reported is None:
        return None
    try:
        summary = json.loads(reported)
    except (ValueError, RecursionError):
        summary = None
    values = summary if isinstance(summary, dict) else {}
    done, total = _number(values.get("done")), _number(values.get("total"))
    if done is None:
        return ShownProgress(reported)
    percent = _percent(done, total) if total and total > 0 else None
    words = (
        f"{done:,}",
        "" if total is None else f"of {total:,}",
        str(values.get("unit") or ""),
        "" if percent is None else f"({percent:.0f} %)",
    )
    return ShownProgress(" ".join(filter(None, words)), percent)


def _number(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _percent(done: float, total: float) -> float | None:
    """Return how many percent it is; whole numbers may be larger than any float."""
    try:
        return max(0.0, min(100.0, 100 * done / total))
    except OverflowError:
        return None


def show_age(seconds: float | timedelta) -> str:
    """Write how long ago, or how long, in one unit: `40ms`, `4.2s`, `17m`, `3h`, `12d`.

    Less than a microsecond is `0s`.

    messages.format_interval and `duration` of app.js write the same.
    """
    seconds = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    written = (_one_unit(seconds / size, unit, limit) for unit, size, limit in UNITS)
    return next(filter(None, written)) if seconds >= MICROSECOND else "0s"


def _one_unit(number: float, unit: str, limit: float) -> str | None:
    """Write a number in a unit, with one decimal below 10, halves rounded up; None if it reaches the limit."""
    rounded = math.floor(number * 10 + 0.5) / 10 if number < 9.95 else math.floor(number + 0.5)  # noqa: PLR2004
    return f"{rounded:.1f}".removesuffix(".0") + unit if rounded < limit else None


def show_ago(age: timedelta) -> str:
    """Write how long ago; `in 5m` for the future."""
    return f"{show_age(age)} ago" if age >= timedelta(0) else f"in {show_age(-age)}"


def sparkline(values: Sequence[float | None]) -> str:
    """Draw numbers as bars of text, the highest one full; zero is a dot, None a blank."""
    highest = max((value for value in values if value), default=0.0)
    return "".join(_bar(value, highest) for value in values)


def _bar(value: float | None, highest: float) -> str:
    if value is None:
        return " "
    return BARS[min(len(BARS) - 1, int(value / highest * len(BARS)))] if value > 0 else "·"
