"""Publish messages from Python, in the caller's own transaction: a message is there if and only if the caller commits.

`publish(conn, "orders.created", {"id": 7})` inserts one and returns its id; `publish_many(conn, messages)` streams any number by COPY.
Both take a psycopg `Connection`, or an `AsyncConnection` and then return something to await. What cannot be published is refused,
and the caller's transaction stays usable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Unpack, overload

import psycopg
from psycopg.rows import tuple_row

from pgrouse.errors import PublishRefused
from pgrouse.new_message import NewMessage, Options, row

DEFAULT_PRIORITY = 5  # of the column; COPY cannot leave out one row's value
BLOCK_BYTES = 64 * 1024

AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


@overload
def publish(conn: psycopg.Connection[Any], topic: str, payload: Any = None, **options: Unpack[Options]) -> int: ...


@overload
def publish(
    conn: psycopg.AsyncConnection[Any], topic: str, payload: Any = None, **options: Unpack[Options]
) -> Coroutine[Any, Any, int]: ...


def publish(
    conn: AnyConnection, topic: str, payload: Any = None, **options: Unpack[Options]
) -> int | Coroutine[Any, Any, int]:
    """Publish one message in the connection's transaction and return its id; await it on an AsyncConnection.

    Args:
        conn: the caller's connection. Nothing is committed here, unless it is in autocommit mode.
        topic: what kind of message it is.
        payload: any value with a JSON form, pydantic models and dataclasses too. A str is a JSON string; it is not parsed.
        **options: see the attributes of NewMessage.

    Raises:
        PublishRefused: at the call, on an AsyncConnection too; nothing was sent.
        psycopg.Error: the server refused the row (a key that stands already, no right), or is gone.
    """
    query, values = _insert(NewMessage(topic=topic, payload=payload, **options))
    match conn:
        case psycopg.AsyncConnection():
            return _insert_async(conn, query, values)
        case psycopg.Connection():
            # A cursor of our own: the caller's row and cursor factories would change what comes back.
            row = psycopg.Cursor(conn, row_factory=tuple_row).execute(query, values).fetchone()
            return _id(row)
        case _:
            raise _unknown_connection(conn)


@overload
def publish_many(conn: psycopg.Connection[Any], messages: Iterable[NewMessage]) -> int: ...


@overload
def publish_many(conn: psycopg.AsyncConnection[Any], messages: Iterable[NewMessage]) -> Coroutine[Any, Any, int]: ...


def publish_many(conn: AnyConnection, messages: Iterable[NewMessage]) -> int | Coroutine[Any, Any, int]:
    """Publish any number of messages by COPY in the connection's transaction; return how many. Await it on an AsyncConnection.

    The messages are streamed, and become available in their order. All are published or none. COPY gives no ids back: whoever needs
    them calls `publish` for each, best within `conn.pipeline()`.

    Raises:
        PublishRefused: says which message; none was published, and the transaction can still be used.
        psycopg.Error: the server refused a row, or is gone.
    """
    match conn:
        case psycopg.AsyncConnection():
            return _copy_async(conn, Rows(messages))
        case psycopg.Connection():
            return _copy(conn, Rows(messages))
        case _:
            raise _unknown_connection(conn)


def _unknown_connection(conn: object) -> TypeError:
    return TypeError(
        f"publish needs a psycopg Connection or AsyncConnection, not a {type(conn).__module__}.{type(conn).__qualname__}"
    )


def _id(row: tuple[Any, ...] | None) -> int:
    return int(row[0]) if row else 0


async def _insert_async(conn: psycopg.AsyncConnection[Any], query: bytes, values: list[Any]) -> int:
    cursor = await psycopg.AsyncCursor(conn, row_factory=tuple_row).execute(query, values)
    return _id(await cursor.fetchone())


def _insert(message: NewMessage) -> tuple[bytes, list[Any]]:
    """Return the INSERT of one message. Columns that were not given are not named: the server's defaults hold."""
    columns = row(message)
    values = ", ".join("clock_timestamp() + %s" if isinstance(value, timedelta) else "%s" for value in columns.values())
    query = f"INSERT INTO messages.message ({', '.join(columns)}) VALUES ({values}) RETURNING id"  # noqa: S608 - only names of ours
    return query.encode(), list(columns.values())


UNTIMED = ("topic", "channel", "key", "priority", "payload", "body", "headers", "max_attempts")
TIMES = ("available_at", "expires_at")
# The clock is read after the transaction has its number: a row must not seem older than its transaction, or claims look for it too late.
CLOCK = b"SELECT clock_timestamp() FROM pg_current_xact_id()"


def _copy(conn: psycopg.Connection[Any], rows: Rows) -> int:
    with psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        cursor.execute(b"SELECT")  # joins, or begins, the caller's transaction; without it the next line would commit
        with conn.transaction():
            cursor.execute(CLOCK)
            for statement, blocks in rows.copies(cursor.fetchone()):
                with cursor.copy(statement) as copy:
                    for block in blocks:
                        copy.write(block)
    return rows.count


async def _copy_async(conn: psycopg.AsyncConnection[Any], rows: Rows) -> int:
    async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
        await cursor.execute(b"SELECT")
        async with conn.transaction():
            await cursor.execute(CLOCK)
            for statement, blocks in rows.copies(await cursor.fetchone()):
                async with cursor.copy(statement) as copy:
                    for block in blocks:
                        await copy.write(block)
    return rows.count


class Rows:
    """Messages as the text of at most two COPYs.

    The first leaves the times to the server's defaults. From the first message on that has a time of its own, a second one gives all of
    them: the server's clock as it was read before, plus what has passed since.
    """

    def __init__(self, messages: Iterable[NewMessage]) -> None:
        self.count = 0
        self._rows = self._checked(messages)
        self._next = next(self._rows, None)

    def copies(self, clock: tuple[datetime] | None) -> Iterator[tuple[bytes, Iterator[bytes]]]:
        """Yield each COPY statement and its blocks of text. clock: the server's."""
        started = time.monotonic()

        def now() -> datetime:
            assert clock is not None  # noqa: S101 - CLOCK returns a row
            return clock[0] + timedelta(seconds=time.monotonic() - started)

        if self._next is not None and not self._is_timed(self._next):
            yield _copy_statement(UNTIMED), _blocks(self._lines_untimed())
        if self._next is not None:
            yield _copy_statement(UNTIMED + TIMES), _blocks(self._lines_timed(now))

    def _checked(self, messages: Iterable[NewMessage]) -> Iterator[dict[str, Any]]:
        for number, message in enumerate(messages, 1):
            try:
                yield {"priority": DEFAULT_PRIORITY} | row(message)
            except PublishRefused as error:
                raise PublishRefused(f"message number {number}: {error}") from error

    @staticmethod
    def _is_timed(row: dict[str, Any]) -> bool:
        return "available_at" in row or "expires_at" in row

    def _lines_untimed(self) -> Iterator[bytes]:
        while self._next is not None and not self._is_timed(self._next):
            yield _line(self._next, UNTIMED)
            self._advance()

    def _lines_timed(self, now: Callable[[], datetime]) -> Iterator[bytes]:
        while (row := self._next) is not None:
            moment = now()
            times = {name: moment + row[name] for name in TIMES if isinstance(row.get(name), timedelta)}
            yield _line({"available_at": moment} | row | times, UNTIMED + TIMES)
            self._advance()

    def _advance(self) -> None:
        self.count += 1
        self._next = next(self._rows, None)


def _copy_statement(columns: tuple[str, ...]) -> bytes:
    return f"COPY messages.message ({', '.join(columns)}) FROM STDIN (ENCODING 'UTF8')".encode()


def _blocks(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Gather lines: one write for each would be slow."""
    block = bytearray()
    for line in lines:
        block += line
        if len(block) >= BLOCK_BYTES:
            yield bytes(block)
            block.clear()
    yield bytes(block)


def _line(row: dict[str, Any], columns: tuple[str, ...]) -> bytes:
    return "\t".join([_field(row.get(column)) for column in columns]).encode() + b"\n"


def _field(value: Any) -> str:
    """Write one value for COPY. No string here has a line break or a tab: JSON escapes them, names do not contain them."""
    match value:
        case None:
            return "\\N"
        case str():
            return value.replace("\\", "\\\\")
        case bytes():
            return "\\\\x" + value.hex()
        case datetime():
            return value.isoformat()
        case _:
            return str(value)
