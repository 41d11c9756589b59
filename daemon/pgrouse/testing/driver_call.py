"""Makes the calls of a worker on a connection of any driver, in the transaction of a test.

A daemon makes them on psycopg, which converts their values. Here they are written into the statement, and its rows come
back as one text: that is the same for every driver.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

from psycopg.adapt import PyFormat, Transformer
from pydantic_core import from_json

from pgrouse.client.call import Call
from pgrouse.publishing.drivers.driver import Driver
from pgrouse.publishing.statement import Statement

T = TypeVar("T")
PLACE = re.compile(rb"%s")
# What means something in a literal, or to a driver.
SPECIAL = re.compile(rb"[%:'\\]")


async def run_on_driver(driver: Driver, call: Call[T]) -> T:
    """Make a call whose values are a list, and return its result. Errors are those of the driver."""
    rows = f"SELECT coalesce(json_agg(r), '[]')::text FROM ({_written(call).decode()}) AS r"  # noqa: S608 - literals
    (text,) = await driver.fetch_row(Statement(rows, {})) or ("[]",)
    return call.read([tuple(row.values()) for row in from_json(text)])


def _written(call: Call[Any]) -> bytes:
    """Return the statement of a call with its values as literals, without any sign that a driver would read."""
    values = iter(call.values)
    return PLACE.sub(lambda _: _literal(next(values)), call.statement)


def _literal(value: Any) -> bytes:
    if value is None:
        return b"NULL"
    text = bytes(Transformer().get_dumper(value, PyFormat.TEXT).dump(value) or b"")
    return b"E'" + SPECIAL.sub(lambda found: b"\\x%02x" % ord(found[0]), text) + b"'"
