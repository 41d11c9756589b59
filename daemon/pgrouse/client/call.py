"""A call of one SQL function: its statement, its values, and what its rows become.

The functions of `pgrouse.client.calls` build calls and do nothing else. `run` and `run_async` are the two ways to make one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.rows import tuple_row

T = TypeVar("T")
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call.

    Attributes:
        statement: names every function and type with its schema, so that it means the same on any connection.
        values: of its placeholders, in their order.
        read: turns the rows into the result.
    """

    statement: bytes
    values: Sequence[Any]
    read: Callable[[Rows], T]


def run(conn: psycopg.Connection[Any], call: Call[T]) -> T:
    """Make a call and return its result. Errors of the server are psycopg's."""
    # A cursor of our own: the factories of the connection would change what comes back.
    with psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        return call.read(cursor.execute(call.statement, call.values).fetchall())


async def run_async(conn: psycopg.AsyncConnection[Any], call: Call[T]) -> T:
    """Make a call and return its result. Errors of the server are psycopg's."""
    async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
        await cursor.execute(call.statement, call.values)
        return call.read(await cursor.fetchall())


def function_call(function: str, read: Callable[[Rows], T], columns: str = "*", /, **arguments: Any) -> Call[T]:
    """Build the call of a function by the names of its arguments. What is None is left to its default.

    Args:
        function: its name in the schema messages.
        read: turns the rows into the result.
        columns: what to select of its rows, qualified.
        **arguments: by their names in SQL without `p_`; a trailing `_` is dropped, for names that Python reserves.
    """
    given = {name.rstrip("_"): value for name, value in arguments.items() if value is not None}
    return Call(_statement(function, columns, tuple(given)), list(given.values()), read)


@lru_cache(maxsize=1024)
def _statement(function: str, columns: str, names: tuple[str, ...]) -> bytes:
    arguments = ", ".join(f"p_{name} => %s" for name in names)
    return f"SELECT {columns} FROM messages.{function}({arguments})".encode()


def value(rows: Rows) -> Any:
    """Read the only value of the only row."""
    ((result,),) = rows
    return result


def nothing(rows: Rows) -> None:
    """Read the row of a function without a result."""
