"""How pages write numbers, times and values: the filters of templates."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from cron_descriptor import (
    ExpressionDescriptor,
    FormatException,
    MissingFieldException,
    Options,
    WrongArgumentException,
)
from jinja2 import Environment
from markupsafe import Markup, escape

from pgrouse.alerts import runbooks
from pgrouse.client.calls.monitoring.stats import COUNT_BOUND
from pgrouse.config.duration import show as show_setting
from pgrouse.values import error_line
from pgrouse.values.format import harmless, show_age, show_ago, show_estimate

CODE = re.compile("`([^`]+)`")
SEPARATORS = re.compile("(?<=[.:_-])(?=.)")
NONE = "\N{EN DASH}"
SECONDS = re.compile(r"(\d{1,5}) *s(?:ec(?:ond)?s?)?", re.IGNORECASE | re.ASCII)
MIN_RATE = 0.01
CRON_OPTIONS = Options(verbose=False, use_24hour_time_format=True)
# How many values the fields of a cron expression have, where steps through them begin again at a regular time; the
# seconds may be absent.
STEPS_OF = (60, 60, 24, 1, 1, 1)


def count(value: float | None) -> str:
    """Write a count: `12,345`."""
    return NONE if value is None else f"{value:,.0f}"


def waiting(value: int, is_estimate: bool | None = None) -> str:
    """Write how many messages wait, as `stats` says: `12,345`, or an estimate: `≈ 52,000`.

    is_estimate: of a sum of several.
    """
    return show_estimate(value, is_estimate=value >= COUNT_BOUND if is_estimate is None else is_estimate)


def short(value: float | None) -> str:
    """Write a large count so that it can be taken in: `12.3 k`, `1.2 M`."""
    if value is None:
        return NONE
    # Up to 10,000 all digits have a place.
    for unit, size, scale in (("G", 1e9, 1e9), ("M", 1e6, 1e6), ("k", 1e4, 1e3)):
        if abs(value) >= size:
            return f"{three_digits(value / scale)} {unit}"
    return f"{value:,.0f}"


def size(value: float) -> str:
    """Write a number of bytes so that it can be taken in: `12.3 MB`."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{three_digits(value / scale)} {unit}"
    return f"{value:,.0f} B"


def three_digits(value: float) -> str:
    """Write a number with three digits, never as a power of ten."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"  # noqa: PLR2004


def duration(value: float | timedelta | None) -> str:
    """Write how long: `85us`, `4.2ms`, `17m`."""
    return NONE if value is None or (isinstance(value, float) and math.isnan(value)) else show_age(value)


def rate(per_s: float | None) -> str:
    """Write messages per second: `1.2 k/s`, `0.02/s`. One unit for all, so that a column of them can be compared."""
    if per_s is None:
        return NONE
    if 0 < per_s < MIN_RATE:
        return f"< {MIN_RATE}/s"
    if per_s < 1:
        return f"{round(per_s, 2):g}/s"
    return f"{short(per_s) if per_s >= 100 else three_digits(per_s)}/s"  # noqa: PLR2004 - three digits either way


def ago(at: datetime | None) -> str:
    """Write how long ago a moment was, or how far ahead it is. The browser goes on counting."""
    return "never" if at is None else show_ago(now() - at)


def utc(at: datetime | None) -> str:
    """Write a moment in UTC, for a tooltip: `2026-11-26 08:30:00 UTC`."""
    return NONE if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def moment(at: datetime | None) -> Markup | str:
    """Write a moment in UTC, so that the browser can show it in its own time zone."""
    return NONE if at is None else _time(at, utc(at), "s")


def exact_moment(at: datetime) -> Markup:
    """Write a moment in UTC to the millisecond: an attempt may last no longer."""
    return _time(at, f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC", "ms")


def _time(at: datetime, text: str, digits: str) -> Markup:
    return Markup('<time datetime="{}" data-moment="{}">{}</time>').format(at.isoformat(), digits, text)


def interval(value: timedelta | None) -> str:
    """Write a duration as it is typed: `1h30m`."""
    return NONE if value is None else show_setting(value)


def lastline(error: str) -> str:
    """Return the line that names an error: of a traceback the exception."""
    return error_line.last_line(error, 300)


def sentence(text: str) -> str:
    """Begin a text with a capital letter, unless its first word is a name and not a word."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


def breakable(name: str) -> Markup:
    """Let a long name continue on another line behind a separator, before it is broken inside a word."""
    return Markup("<wbr>").join(SEPARATORS.split(name))


def backticks(text: str) -> Markup:
    """Write a text with what stands in backticks as code."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped


def cron_words(cron: str) -> str:
    """Say in words when a cron expression matches.

    The result is "" for one that says so itself, or whose words would not be exact.
    """
    fields = cron.split()
    if interval := SECONDS.fullmatch(cron.strip()):
        return f"Every {interval[1]} seconds" if int(interval[1]) != 1 else "Every second"
    if len(fields) not in (5, 6) or not all(map(_has_exact_words, fields, STEPS_OF[-len(fields) :])):
        return ""
    try:
        return str(ExpressionDescriptor(" ".join(fields), CRON_OPTIONS).get_description())
    except (FormatException, MissingFieldException, WrongArgumentException, ValueError):
        return ""


def _has_exact_words(field: str, steps_of: int) -> bool:
    """Whether it has no steps, or those that divide a minute, an hour or a day.

    `*/40` is at 0 and 40, and not every 40 minutes.
    """
    whole, slash, step = field.partition("/")
    if not slash:
        return whole == "*" or "*" not in whole
    return whole == "*" and step.isdecimal() and int(step) > 0 and steps_of % int(step) == 0


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def install(environment: Environment) -> None:
    """Let templates use all of it."""
    filters: list[Any] = [
        count,
        waiting,
        short,
        size,
        duration,
        rate,
        ago,
        utc,
        moment,
        exact_moment,
        interval,
        harmless,
        lastline,
        sentence,
        backticks,
        breakable,
        cron_words,
    ]
    environment.filters |= {each.__name__: each for each in filters} | {"runbook": runbooks.path}
    environment.globals["now"] = now
