"""A call of one SQL function: its statement, its values, and what its rows become.

The functions of `pgrouse.client.calls` build calls and do nothing else. `run` and `run_async` are the two ways to make
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import lru_cache, partial
from operator import index
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from pgrouse.config.duration import AnyDuration, to_timedelta

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
R = TypeVar("R", bound="DataclassInstance")
Rows = list[tuple[Any, ...]]
JSON_SUFFIX = "_json"
TEXTS = ("str", "str | None")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call.

    Attributes:
        statement: names every function and type with its schema, so that it means the same on any connection.
        values: of its placeholders.
        read: turns the rows into the result.
    """

    statement: bytes
    values: Sequence[Any] | Mapping[str, Any]
    read: Callable[[Rows], T]


def run(conn: psycopg.Connection[Any], call: Call[T]) -> T:
    """Make a call and return its result. Errors of the server are psycopg's."""
    # A cursor of our own: the factories of the connection would change what comes back.
    with psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        return call.read(cursor.execute(call.statement, call.values, binary=True).fetchall())


async def run_async(conn: psycopg.AsyncConnection[Any], call: Call[T]) -> T:
    """Make a call and return its result. Errors of the server are psycopg's."""
    async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
        await cursor.execute(call.statement, call.values, binary=True)
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
    """Build the call of a function that returns rows.

    Args:
        function: its name in the schema messages.
        row: a dataclass with its columns. JSON is text, so that a value that Python cannot hold harms no other:
            `detail_json` is the column detail.
        **arguments: as of function_call.
    """
    return function_call(function, partial(all_rows, row), _columns(row), **arguments)


def row_call(function: str, row: type[R], /, **arguments: Any) -> Call[R]:
    """Build the call of a function that returns one row."""
    return function_call(function, partial(_only_row, row), _columns(row), **arguments)


def select_call(relation: str, row: type[R], clauses: str, /, **values: Any) -> Call[list[R]]:
    """Build a SELECT of a table or view.

    Args:
        relation: its name in the schema messages; it is called f.
        row: a dataclass with the columns to select, as of rows_call.
        clauses: what follows: WHERE, ORDER BY and LIMIT, with placeholders by name.
        **values: of the placeholders.
    """
    return _select(f"messages.{relation}", row, clauses, values)


def query_call(query: str, row: type[R], clauses: str = "", /, **values: Any) -> Call[list[R]]:
    """Build a SELECT of a query, which is called f. Other arguments as of select_call."""
    return _select(f"({query})", row, clauses, values)


def _select(source: str, row: type[R], clauses: str, values: dict[str, Any]) -> Call[list[R]]:
    statement = f"SELECT {_columns(row)} FROM {source} AS f {clauses}"  # noqa: S608 - constants only
    return Call(statement.encode(), values, partial(all_rows, row))


def first(call: Call[list[T]]) -> Call[T | None]:
    """Build the call that returns the first row of another; None if it has none."""
    return Call(call.statement, call.values, lambda rows: next(iter(call.read(rows[:1])), None))


@lru_cache(maxsize=256)
def _columns(row: type[DataclassInstance]) -> str:
    return ", ".join(_column(each.name, each.type) for each in fields(row))


def _column(name: str, type_: Any) -> str:
    """Select a column.

    What is to be a text comes as one: psycopg knows the binary form of few types, not that of xid8.
    """
    return f"f.{name.removesuffix(JSON_SUFFIX)}::pg_catalog.text AS {name}" if type_ in TEXTS else f"f.{name}"


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


def all_rows(row: type[R], rows: Rows) -> list[R]:
    """Read rows as objects of a dataclass."""
    return [row(*each) for each in rows]


def _only_row(row: type[R], rows: Rows) -> R:
    (only,) = rows
    return row(*only)


def bigints(numbers: Iterable[int]) -> str:
    """Return an array of the server, as text.

    For hundreds of ids this is much faster than a list, and it has one type whatever they are.
    """
    # index: a text is no list of its digits.
    return "{" + str(list(map(index, numbers)))[1:-1] + "}"


def integers(numbers: Iterable[int | None] | None) -> str | None:
    """Return an array of the server that may have NULLs, as text, as `bigints` does; None if there is none."""
    if numbers is None:
        return None
    return "{" + ",".join("NULL" if each is None else str(index(each)) for each in numbers) + "}"


def names(each: Sequence[str]) -> str:
    """Return an array of texts of the server, as text, which is kept for the next call.

    A list of thousands is sent again and again.
    """
    return _names(tuple(each))


@lru_cache(maxsize=64)
def _names(each: tuple[str, ...]) -> str:
    return "{" + ",".join(map(_quoted, each)) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def json_text(text: str | None) -> Jsonb | None:
    """Return JSON that is text already as a value of the type jsonb."""
    return None if text is None else Jsonb(text, dumps=str)


def interval(duration: AnyDuration | None, name: str) -> timedelta | None:
    """Return a duration or a number of seconds as a duration. name: as an error calls it."""
    return None if duration is None else to_timedelta(duration, name)
