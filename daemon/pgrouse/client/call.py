"""A call of one SQL function: its statement, its values, and what its rows become.

The functions of `pgrouse.client.calls` build calls and do nothing else. `run` and `run_async` are the two ways to make one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
R = TypeVar("R", bound="DataclassInstance")
Rows = list[tuple[Any, ...]]
# JSON that comes back, as text: one value that Python cannot hold harms no other row.
JsonText = Annotated[str, "jsonb"]


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
        columns: what to select of its rows, which are called f.
        **arguments: by their names in SQL without `p_`; a trailing `_` is dropped, for names that Python reserves.
    """
    given = {name.rstrip("_"): value for name, value in arguments.items() if value is not None}
    return Call(_statement(function, columns, tuple(given)), list(given.values()), read)


def rows_call(function: str, row: type[R], /, **arguments: Any) -> Call[list[R]]:
    """Build the call of a function that returns rows: a dataclass, whose fields are its columns."""
    return function_call(function, partial(_all, row), _columns(row), **arguments)


def row_call(function: str, row: type[R], /, **arguments: Any) -> Call[R]:
    """Build the call of a function that returns one row."""
    return function_call(function, partial(_only, row), _columns(row), **arguments)


def optional_row_call(function: str, row: type[R], /, **arguments: Any) -> Call[R | None]:
    """Build the call of a function that returns one row or none."""
    return function_call(function, partial(_first, row), _columns(row), **arguments)


@lru_cache(maxsize=256)
def _columns(row: type[DataclassInstance]) -> str:
    # The annotations of modules with `from __future__ import annotations` are text.
    return ", ".join(f"f.{each.name}" + _CAST * str(each.type).startswith("JsonText") for each in fields(row))


_CAST = "::pg_catalog.text"


@lru_cache(maxsize=1024)
def _statement(function: str, columns: str, names: tuple[str, ...]) -> bytes:
    arguments = ", ".join(f"p_{name} => %s" for name in names)
    return f"SELECT {columns} FROM messages.{function}({arguments}) AS f".encode()  # noqa: S608 - constants only


def value(rows: Rows) -> Any:
    """Read the only value of the only row."""
    ((result,),) = rows
    return result


def values(rows: Rows) -> list[Any]:
    """Read the only column."""
    return [each for (each,) in rows]


def nothing(rows: Rows) -> None:
    """Read the row of a function without a result."""


def bigints(numbers: Iterable[int]) -> str:
    """Return an array of the server, as text: for hundreds of ids this is much faster than a list, and it is of one type whatever they are."""
    return "{" + ",".join(map(str, numbers)) + "}"


def json_text(text: str | None) -> Jsonb | None:
    """Return JSON that is text already as a value of the type jsonb."""
    return None if text is None else Jsonb(text, dumps=str)


def _all(row: type[R], rows: Rows) -> list[R]:
    return [row(*each) for each in rows]


def _only(row: type[R], rows: Rows) -> R:
    (only,) = rows
    return row(*only)


def _first(row: type[R], rows: Rows) -> R | None:
    return row(*rows[0]) if rows else None
