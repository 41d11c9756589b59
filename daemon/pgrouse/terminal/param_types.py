"""Types of options: durations, points in time, headers, results."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import click

from pgrouse.config.duration import parse


class DurationType(click.ParamType[timedelta]):
    """A duration like `90s` or `1h30m`, given to the command as a timedelta."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read it."""
        try:
            return parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class TimestampType(click.ParamType[datetime]):
    """A point in time in ISO 8601, its time zone included."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read it."""
        try:
            moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.fail(f'expected a time with its zone like "2027-01-31T08:00:00+01:00", found {value!r}', param, ctx)
        return moment


class HeaderType(click.ParamType[tuple[str, str]]):
    """A header as `name=value`."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split it."""
        name, equals, text = value.partition("=")
        if not name or not equals:
            self.fail(f'expected a header like "trace=abc", found {value!r}', param, ctx)
        return name, text


class NamesType(click.ParamType[tuple[str, ...]]):
    """Names with commas between them."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Split them."""
        names = value if isinstance(value, tuple) else tuple(name.strip() for name in value.split(","))
        if "" in names:
            self.fail(f"expected names with commas between them, found {value!r}", param, ctx)
        return names


class MessageIdType(click.ParamType[int]):
    """The id of a message."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        if not re.fullmatch(r"[0-9]{1,18}", str(value)):
            self.fail(f"expected the id of a message, found {value!r:.100}", param, ctx)
        return int(value)


DURATION = DurationType()
TIMESTAMP = TimestampType()
HEADER = HeaderType()
NAMES = NamesType()
MESSAGE_ID = MessageIdType()
