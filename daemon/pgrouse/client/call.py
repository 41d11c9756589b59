"""A call of one SQL function: its statement, its values, and what its rows become.

The functions of `pgrouse.client.calls` build calls and do nothing else. `run` and `run_async` are the two ways to make
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from functools import cache, lru_cache, partial, wraps
from operator import index
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb
from pydantic_core import from_json

from pgrouse.config.duration import AnyDuration, to_timedelta
from pgrouse.database.connection_schema import schema_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound="DataclassInstance")
Rows = list[tuple[Any, ...]]
JSON_SUFFIX = "_json"
TEXTS = ("str", "str | None")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call.

    Attributes:
        statement: names every function and type with its schema, so that it means the same on any connection. That of
            the queue is `messages` here, and is rendered when the call is made: `run` and `run_async` are the door.
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
        statement = schema_of(conn).render_bytes(call.statement)
        return call.read(cursor.execute(statement, call.values, binary=True).fetchall())


async def run_async(conn: psycopg.AsyncConnection[Any], call: Call[T]) -> T:
    """Make a call and return its result. Errors of the server are psycopg's."""
    async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
        await cursor.execute(schema_of(conn).render_bytes(call.statement), call.values, binary=True)
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


def binding(function: Callable[P, Call[T]]) -> Callable[P, Call[T]]:
    """Make the binding of an SQL function of a declaration: its name, its arguments and what it returns.

    A duration becomes an interval, a sequence an array; what is None is left to its default. `Call[list[Row]]`,
    `Call[Row | None]` and `Call[Row]` read rows, with the columns of the class. Any other result is the only value of
    the only row.
    """
    return _bind(function, None)


def binding_of_values(function: Callable[P, Call[list[T]]]) -> Callable[P, Call[list[T]]]:
    """Make the binding of an SQL function that returns rows of one column, as `binding` does."""
    return _bind(function, ("*", values))


def binding_read_by(read: Callable[[Rows], T], columns: str) -> Callable[[Callable[P, Call[T]]], Callable[P, Call[T]]]:
    """Make the binding of an SQL function whose rows are read in a way of their own, as `binding` does."""
    return lambda function: _bind(function, (columns, read))


def _bind(function: Callable[P, Call[T]], selected: tuple[str, Callable[[Rows], Any]] | None) -> Callable[P, Call[T]]:
    *kinds, _ = function.__annotations__.items()

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> Call[T]:
        function(*args, **named)  # does nothing, but with wrong arguments it raises an error that names it
        given = dict(zip(dict(kinds), args, strict=False)) | named
        columns, read = selected or _declared_result(function)
        arguments = {name: _converted(name, kind, given[name]) for name, kind in kinds if name in given}
        return function_call(function.__name__, read, columns, **arguments)

    return call


@cache
def _declared_result(function: Callable[..., Any]) -> tuple[str, Callable[[Rows], Any]]:
    """Return how the rows of a declared function are selected and read."""
    (result,) = get_args(get_type_hints(function)["return"])
    row = next((each for each in (result, *get_args(result)) if _is_row(each)), None)
    if row is None:
        return "*", nothing if result is type(None) else value
    if get_origin(result) is list:
        return _columns(row), partial(all_rows, row)
    return _columns(row), partial(_only_row if result is row else _first_row, row)


def _is_row(type_: Any) -> bool:
    return is_dataclass(type_) or hasattr(type_, "_fields")


def _converted(name: str, kind: str, given: Any) -> Any:
    if given is None or not kind.startswith(("AnyDuration", "Sequence")):
        return given
    if kind.startswith("AnyDuration"):
        return interval(given, name.rstrip("_"))
    return bigints(given) if kind.startswith("Sequence[int]") else list(given)


def select_call(relation: str, row: type[R], clauses: str, /, **values: Any) -> Call[list[R]]:
    """Build a SELECT of a table or view.

    Args:
        relation: its name in the schema messages; it is called f.
        row: a dataclass with the columns to select. JSON is text, so that a value that Python cannot hold harms no
            other: `detail_json` is the column detail.
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
def _columns(row: type[Any]) -> str:
    types = {each.name: each.type for each in fields(row)} if is_dataclass(row) else row.__annotations__
    return ", ".join(_column(name, type_) for name, type_ in types.items())


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


def pair(rows: Rows) -> tuple[Any, Any]:
    """Read the two values of the only row."""
    ((one, other),) = rows
    return one, other


def nothing(rows: Rows) -> None:
    """Read the row of a function without a result."""


def all_rows(row: Callable[..., T], rows: Rows) -> list[T]:
    """Read rows as objects of a class."""
    return [row(*each) for each in rows]


def _only_row(row: Callable[..., T], rows: Rows) -> T:
    (only,) = rows
    return row(*only)


def _first_row(row: Callable[..., T], rows: Rows) -> T | None:
    return row(*rows[0]) if rows else None


def decoded(name: str) -> property:
    """Return the property of a row that is a JSON text of it, decoded."""

    def read(row: Any) -> Any:
        text = getattr(row, name)
        return None if text is None else from_json(text)

    return property(read, doc=f"The value of `{name}`.")


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
