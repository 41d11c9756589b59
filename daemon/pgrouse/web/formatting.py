"""How pages write numbers, times and values: the filters of templates."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from jinja2 import Environment

from pgrouse import error_line
from pgrouse.config.duration import show as show_duration
from pgrouse.format import harmless

NONE = "\N{EN DASH}"
MILLI_S, MINUTE_S, HOUR_S, DAY_S = 1e-3, 60, 3600, 86400
# Unit, its seconds, and up to which age it is used.
AGES = (("s", 1, 2 * MINUTE_S), ("min", MINUTE_S, 2 * HOUR_S), ("h", HOUR_S, 2 * DAY_S))


def count(value: float | None, bound: int | None = None) -> str:
    """Write a count: `12,345`; one that stopped at its bound `10,000+`."""
    if value is None:
        return NONE
    return f"{value:,.0f}{'+' if bound is not None and value >= bound else ''}"


def short(value: float | None) -> str:
    """Write a large count so that it can be taken in: `12.3 k`, `1.2 M`."""
    if value is None:
        return NONE
    # Up to 10,000 all digits have a place.
    for unit, size, scale in (("G", 1e9, 1e9), ("M", 1e6, 1e6), ("k", 1e4, 1e3)):
        if abs(value) >= size:
            return f"{three_digits(value / scale)} {unit}"
    return f"{value:,.0f}"


def three_digits(value: float) -> str:
    """Write a number with three digits, never as a power of ten."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"  # noqa: PLR2004


def seconds(value: float | None) -> str:
    """Write a time given in seconds: `85 µs`, `4.2 ms`, `1.3 s`, `4 min`."""
    if value is None or math.isnan(value):
        return NONE
    if value < MILLI_S:
        return f"{three_digits(value * 1e6)} µs" if value else "0 s"
    if value < 1:
        return f"{three_digits(value * 1e3)} ms"
    if value < 2 * MINUTE_S:
        return f"{three_digits(value)} s"
    if value < 2 * HOUR_S:
        return f"{value / MINUTE_S:.0f} min"
    return f"{value / HOUR_S:.0f} h" if value < 2 * DAY_S else f"{value / DAY_S:.0f} d"


def rate(per_s: float | None) -> str:
    """Write messages per second; few of them per minute."""
    if per_s is None:
        return NONE
    if 0 < per_s < 1:
        return f"{three_digits(per_s * 60)}/min"
    return f"{short(per_s) if per_s >= 100 else three_digits(per_s)}/s"  # noqa: PLR2004 - three digits either way


def ago(at: datetime | None) -> str:
    """Write how long ago a moment was, or how far ahead it is. The browser goes on counting."""
    if at is None:
        return "never"
    passed = (now() - at).total_seconds()
    return f"{age(passed)} ago" if passed >= 0 else f"in {age(-passed)}"


def age(value: float | timedelta | None) -> str:
    """Write how long: `4.2 s`, `17 min`, `3 h`, `12 d`. The same as `ago` of app.js, which goes on from here."""
    if value is None:
        return NONE
    left = max(0.0, value.total_seconds() if isinstance(value, timedelta) else value)
    for unit, size, limit in AGES:
        if left < limit:
            return f"{left:.1f} {unit}" if left < 10 else f"{int(left // size)} {unit}"  # noqa: PLR2004
    return f"{int(left // DAY_S)} d"


def moment(at: datetime | None) -> str:
    """Write a moment of the server's clock, with its zone."""
    return NONE if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def interval(value: timedelta | None) -> str:
    """Write a duration as it is typed: `1h30m`."""
    return NONE if value is None else show_duration(value)


def lastline(error: str) -> str:
    """Return the line that names an error: of a traceback the exception."""
    return error_line.last_line(error, 300)


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def install(environment: Environment) -> None:
    """Let templates use all of it."""
    filters: list[Any] = [count, short, seconds, rate, ago, age, moment, interval, harmless, lastline]
    environment.filters |= {each.__name__: each for each in filters}
    environment.globals["now"] = now
