"""Publish messages from Python, in the caller's own transaction: a message is there if and only if the caller commits.

`publish(conn, "orders.created", {"id": 7})` inserts one and returns its id; `publish_many(conn, messages)` streams any number by COPY.
Both take a psycopg `Connection`, or an `AsyncConnection` and then return something to await. What cannot be published is refused
before anything is sent, so that the caller's transaction stays usable.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict, Unpack, overload

import psycopg
from psycopg.rows import tuple_row

from pgrouse import jsonb
from pgrouse.errors import PublishRefused

TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}", re.ASCII)
LABEL = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")  # a key or a channel
MAX_HEADER_BYTES = 65536
MAX_WAIT = timedelta(days=36_500)
MAX_ATTEMPTS = 2**31 - 1
FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
DEFAULT_PRIORITY = 5  # of the column; COPY cannot leave out one row's value
BLOCK_BYTES = 64 * 1024

AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """One message to publish.

    Attributes:
        topic: what kind of message it is.
        payload: any value with a JSON form, pydantic models and dataclasses too; None is JSON's null.
        body: bytes instead of a payload.
        headers: what is about the message rather than in it; a JSON object of at most 64 KiB.
        key: deduplication key; at most one untried message of a topic has it.
        channel: fairness and limit group inside the topic.
        priority: 0 (first) to 9; the table's default is 5.
        delay: how long the message is not yet available, by the server's clock.
        available_at: or the time when it becomes available, with a time zone.
        expires_in: after this time from now it is archived as expired unless an attempt has begun.
        max_attempts: instead of the topic's; 0 is no limit.
    """

    topic: str
    payload: Any = None
    body: bytes | None = None
    headers: Mapping[str, Any] | None = None
    key: str | None = None
    channel: str | None = None
    priority: int | None = None
    delay: timedelta | None = None
    available_at: datetime | None = None
    expires_in: timedelta | None = None
    max_attempts: int | None = None


class Options(TypedDict, total=False):
    """What `publish` takes by name, as in NewMessage."""

    body: bytes | None
    headers: Mapping[str, Any] | None
    key: str | None
    channel: str | None
    priority: int | None
    delay: timedelta | None
    available_at: datetime | None
    expires_in: timedelta | None
    max_attempts: int | None


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
    row = _row(message)
    values = ", ".join("clock_timestamp() + %s" if isinstance(value, timedelta) else "%s" for value in row.values())
    query = f"INSERT INTO messages.message ({', '.join(row)}) VALUES ({values}) RETURNING id"  # noqa: S608 - only names of ours
    return query.encode(), list(row.values())


def _row(message: NewMessage) -> dict[str, Any]:
    """Check a message; return its columns, without those that were not given. A timedelta counts from the server's now."""
    row = {
        "topic": _topic(message.topic),
        "channel": _label("channel", message.channel),
        "key": _label("key", message.key),
        "priority": _integer("priority", message.priority, 9),
        "payload": _payload(message),
        "body": _body(message),
        "headers": _headers(message.headers),
        "max_attempts": _integer("max_attempts", message.max_attempts, MAX_ATTEMPTS),
        "available_at": _available_at(message),
        "expires_at": _wait("expires_in", message.expires_in),
    }
    return {column: value for column, value in row.items() if value is not None}


def _topic(topic: str) -> str:
    if isinstance(topic, str) and TOPIC.fullmatch(topic):
        return topic
    raise PublishRefused(
        f"topic {topic!r:.250} is no topic name: use 1 to 200 of A-Z a-z 0-9 . _ : - and a letter or digit first"
    )


def _label(name: str, value: str | None) -> str | None:
    if value is None or (isinstance(value, str) and LABEL.fullmatch(value)):
        return value
    raise PublishRefused(f"{name} {value!r:.250} cannot be used: it must be a string of 1 to 200 printable characters")


def _integer(name: str, value: int | None, highest: int) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= highest):
        return value
    raise PublishRefused(f"{name} {value!r:.50} cannot be used: it must be an integer from 0 to {highest}")


def _payload(message: NewMessage) -> str | None:
    if message.body is None:
        return jsonb.encode(message.payload)
    if message.payload is None:
        return None
    raise PublishRefused(
        "payload and body were both given: a message has one of them; put what is about the body into headers"
    )


def _body(message: NewMessage) -> bytes | None:
    if message.body is None:
        return None
    if not isinstance(message.body, bytes | bytearray | memoryview):
        raise PublishRefused(
            f"body is a {type(message.body).__name__}, not bytes: encode it, or publish it as the payload"
        )
    body = bytes(message.body)
    if len(body) > jsonb.MAX_BYTES:
        raise PublishRefused(
            f"body has {len(body):,} bytes, {jsonb.MAX_BYTES:,} is the limit: store it elsewhere and publish where it is"
        )
    return body


def _headers(headers: Mapping[str, Any] | None) -> str | None:
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise PublishRefused(f"headers is a {type(headers).__name__}: it must be a mapping of names to values")
    return jsonb.encode(dict(headers), "headers", MAX_HEADER_BYTES)


def _available_at(message: NewMessage) -> datetime | timedelta | None:
    at = message.available_at
    if at is None:
        return _wait("delay", message.delay)
    if message.delay is not None:
        raise PublishRefused("delay and available_at were both given: use one of them")
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise PublishRefused(
            f"available_at {at!r:.100} cannot be used: it must be a datetime with a time zone, or use delay"
        )
    if not FIRST <= at <= LAST:
        raise PublishRefused(
            f"available_at {at.isoformat()} cannot be used: it must be between {FIRST.year} and {LAST.year}"
        )
    return at


def _wait(name: str, value: timedelta | None) -> timedelta | None:
    if value is None or (isinstance(value, timedelta) and timedelta(0) <= value <= MAX_WAIT):
        return value
    raise PublishRefused(
        f"{name} {value!r:.100} cannot be used: it must be a timedelta from 0 to {MAX_WAIT.days:,} days"
    )


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
                yield {"priority": DEFAULT_PRIORITY} | _row(message)
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
