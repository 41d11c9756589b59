"""Durations as people write them: `250ms`, `5s`, `1h30m`, `1d`, or a number of seconds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, PlainSerializer, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

# The types in which code may pass a duration.
AnyDuration = timedelta | float | str

# The longest duration of any setting.
LONGEST = timedelta(days=36_500)
SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
PATTERN = r"(?:\d+(?:\.\d+)?(?:ms|d|h|m|s))+"
WAYS = 'a timedelta, a number of seconds, or a text like "5s" or "1h30m"'
EXPECTED = 'expected a duration like "250ms", "5s", "1h30m" or "1d", or a number of seconds'


def parse(value: Any) -> timedelta:
    """Read a duration; a bare number means seconds.

    Raises:
        ValueError: it is not a duration, is negative, or is longer than LONGEST.
    """
    seconds = _seconds(value)
    if not 0 <= seconds <= LONGEST.total_seconds():  # NaN fails too
        raise ValueError(f"{EXPECTED}, found {value!r}")
    # Round to whole microseconds: the binary fraction of "0.1s" must not show up when it is printed again.
    return timedelta(microseconds=round(seconds * 1_000_000))


def to_timedelta(value: AnyDuration, name: str) -> timedelta:
    """Return a duration that code passed. name: the name that errors use.

    Raises:
        TypeError: it has another type.
        ValueError: it is negative, a text that is not a duration, or longer than a timedelta can be.
    """
    if not isinstance(value, timedelta | int | float | str) or isinstance(value, bool):
        raise TypeError(f"{name} has the type {type(value).__name__}: give {WAYS}")
    seconds = _seconds(value)
    if not 0 <= seconds < timedelta.max.total_seconds():  # NaN fails too
        raise ValueError(f"{name} is {_shown(value)}: give {WAYS}, of at least 0")
    return value if isinstance(value, timedelta) else timedelta(seconds=seconds)


def _shown(value: AnyDuration) -> str:
    try:
        return f"{value.total_seconds():g} s" if isinstance(value, timedelta) else f"{value!r:.100}"
    except ValueError:  # an int of thousands of digits
        return "a number with too many digits"


def _seconds(value: Any) -> float:
    match value:
        case timedelta():
            return value.total_seconds()
        case bool():
            return math.nan
        case int() | float():
            return value
        case str():
            return _seconds_of_text(value.strip())
        case _:
            return math.nan


def _seconds_of_text(text: str) -> float:
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text)
    if not re.fullmatch(PATTERN, text, re.ASCII):
        return math.nan
    return sum(float(number) * SECONDS[unit] for number, unit in re.findall(r"([0-9.]+)(ms|d|h|m|s)", text))


def show(duration: timedelta) -> str:
    """Write a duration so that `parse` reads the same one: `1h30m`, `250ms`, `0s`."""
    left = round(duration.total_seconds() * 1_000_000)
    parts = []
    for unit, seconds in SECONDS.items():
        whole, left = divmod(left, round(seconds * 1_000_000))
        parts += [f"{whole}{unit}"] if whole else []
    return "".join(parts) + (f"{left / 1000:g}ms" if left else "") or "0s"


Duration = Annotated[
    timedelta,
    BeforeValidator(parse),
    PlainSerializer(show),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string", "pattern": f"^{PATTERN}$"}, {"type": "number", "minimum": 0}],
            "description": EXPECTED,
        }
    ),
]


@dataclass(frozen=True)
class Bounds:
    """The minimum and the maximum duration of a key, both included."""

    low: timedelta
    high: timedelta

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check the bounds of what was read."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the bounds: of a number by the key words of JSON Schema, of a text in the description."""
        described = handler(schema)
        seconds = {"minimum": self.low.total_seconds(), "maximum": self.high.total_seconds()}
        ways = [way | seconds if way.get("type") == "number" else way for way in described.get("anyOf", [])]
        text = f"{EXPECTED}; from {show(self.low)} to {show(self.high)}"
        return {**described, **({"anyOf": ways} if ways else {}), "description": text}

    def _check(self, value: timedelta) -> timedelta:
        if not self.low <= value <= self.high:
            raise ValueError(f"must be between {show(self.low)} and {show(self.high)}, found {show(value)}")
        return value


# As a part of a type: Annotated[Duration, between(low, high)].
between = Bounds
