"""Formats values for people: numbers, ages, and text from messages without control characters."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

# C0 and C1 controls except line feed and tab, what is invisible or turns the direction of text, halves of surrogate pairs.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """Return the text with control characters (colours, cursor movements, bells) written out; lines and tabs stay."""
    return _HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def show_count(bound: int) -> Callable[[int], str]:
    """Return how to write a count that stops at a bound: `10,000+`."""
    return lambda count: f"{count:,}" + ("+" if count >= bound else "")


def plural(count: int, noun: str) -> str:
    """Write how many there are of what: `1 message`, `1,200 messages`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def show_age(seconds: float | timedelta) -> str:
    """Write how long ago, or how long, in one unit: `40ms`, `4.2s`, `17m`, `3h`, `12d`."""
    seconds = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f}ms"
    if abs(seconds) < 10:  # noqa: PLR2004
        return f"{seconds:.1f}s"
    for unit, size, limit in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if abs(seconds) < size * limit:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def show_ago(age: timedelta) -> str:
    """Write how long ago; `in 5m` for what is to come."""
    return f"{show_age(age)} ago" if age >= timedelta(0) else f"in {show_age(-age)}"
