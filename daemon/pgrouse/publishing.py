"""Publish messages from Python, in the caller's own transaction: a message is there if and only if the caller commits.

`publish(conn, "orders.created", {"id": 7})` inserts one and returns its id; `publish_many(conn, messages)` streams any number by COPY.
Both take a psycopg `Connection`, or an `AsyncConnection` and then return something to await. What cannot be published is refused,
and the caller's transaction stays usable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import psycopg
from psycopg.rows import tuple_row

from pgrouse import known_schema, trace_context
from pgrouse.errors import (
    InvalidPayload,
    KeyTaken,
    PayloadTooLarge,
    PublishRateExceeded,
    PublishRefused,
    TopicFull,
    TopicNotRegistered,
    TopicReserved,
)
from pgrouse.known_schema import KnownSchema, Schemas
from pgrouse.new_message import NewMessage, OnConflict, Options, row
from pgrouse.trace_context import UNTRACED, Untraced

if TYPE_CHECKING:
    from pgrouse.telemetry.sending import Sending

DEFAULT_PRIORITY = 5  # of the column; COPY cannot leave out one row's value
BLOCK_BYTES = 64 * 1024
# To hold a payload beyond it against a schema would keep an event loop from everything else.
LARGE_CHARS = 262_144
# How often a topic's schema may change while one message is published.
TRIES = 20

What = Literal["inserted", "replaced", "ignored", "appended", "held", "dropped"]

AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
Statement = tuple[bytes, dict[str, Any]]
# What is asked of the database one after the other; each answer is the only row, None if there is none.
Steps = Generator[Statement, tuple[Any, ...] | None, "Published"]


class Published(int):
    """The id of the message that stands for what was published; 0 if it was dropped.

    Attributes:
        what: `inserted`; by on_conflict: `replaced`, `ignored` or `appended`, with the id of the message that waited; `held`: the topic
            has a key_ttl, and this message still holds the key; `dropped`: the topic is full and its policy is to drop.
    """

    what: What

    def __new__(cls, message_id: int | None, what: What) -> Published:
        """Make one. No id: it was dropped."""
        published = super().__new__(cls, message_id or 0)
        published.what = what
        return published


class PublishedMany(int):
    """How many messages were published.

    Attributes:
        dropped: how many were not: their topics are full, and their policy is to drop.
    """

    dropped: int

    def __new__(cls, published: int, dropped: int) -> PublishedMany:
        """Make one."""
        many = super().__new__(cls, published)
        many.dropped = dropped
        return many


@overload
def publish(
    conn: psycopg.Connection[Any], topic: str, payload: Any = None, **options: Unpack[Options]
) -> Published: ...


@overload
def publish(
    conn: psycopg.AsyncConnection[Any], topic: str, payload: Any = None, **options: Unpack[Options]
) -> Coroutine[Any, Any, Published]: ...


def publish(
    conn: AnyConnection, topic: str, payload: Any = None, **options: Unpack[Options]
) -> Published | Coroutine[Any, Any, Published]:
    """Publish one message in the connection's transaction and return its id; await it on an AsyncConnection.

    Args:
        conn: the caller's connection. Nothing is committed here, unless it is in autocommit mode.
        topic: what kind of message it is.
        payload: any value with a JSON form, pydantic models and dataclasses too. A str is a JSON string; it is not parsed.
        **options: see the attributes of NewMessage.

    Raises:
        PublishRefused: at the call, on an AsyncConnection too; nothing was sent.
        InvalidPayload: the payload does not fit the payload_schema of its topic; nothing was published, the transaction can still be used.
        NotAdmitted: a policy of the topic is against it: TopicFull, PublishRateExceeded, TopicNotRegistered, PayloadTooLarge, KeyTaken.
            The transaction has failed.
        psycopg.Error: the server refused the row for another reason (no right), or is gone.
    """
    message = NewMessage(topic=topic, payload=payload, **options)
    columns = row(message)
    sending = trace_context.begin_sending(conn, topic)
    steps = _publishing(message, columns if sending.carry is None else sending.carry(columns))
    first = next(steps)
    match conn:
        case psycopg.AsyncConnection():
            return _take_async(conn, steps, first, sending)
        case psycopg.Connection():
            return _take(conn, steps, first, sending)
        case _:
            raise _unknown_connection(conn)


async def publish_row(
    conn: psycopg.AsyncConnection[Any], columns: dict[str, Any], on_conflict: OnConflict = "error"
) -> Published:
    """Publish what `row` has checked already, as `publish` does; a large payload is held against its schema in a thread.

    Raises:
        InvalidPayload, NotAdmitted, psycopg.Error: as publish.
    """
    message = NewMessage(topic=columns["topic"], on_conflict=on_conflict)
    sending = trace_context.begin_sending(conn, message.topic)
    steps = _publishing(message, columns if sending.carry is None else sending.carry(columns))
    is_large = len(columns.get("payload", "")) > LARGE_CHARS
    cursor, found = psycopg.AsyncCursor(conn, row_factory=tuple_row), None
    with sending:
        while True:
            step = await asyncio.to_thread(_step, steps, found) if is_large else _step(steps, found)
            if isinstance(step, Published):
                return sending.sent(step)
            try:
                found = await (await cursor.execute(*step)).fetchone()
            except psycopg.Error as error:
                raise _in_our_words(error) from error


def _step(steps: Steps, found: tuple[Any, ...] | None) -> Statement | Published:
    """Return what is to be asked next, or what came of it."""
    try:
        return steps.send(found)
    except StopIteration as end:
        return _published(end)


@overload
def publish_many(conn: psycopg.Connection[Any], messages: Iterable[NewMessage]) -> PublishedMany: ...


@overload
def publish_many(
    conn: psycopg.AsyncConnection[Any], messages: Iterable[NewMessage]
) -> Coroutine[Any, Any, PublishedMany]: ...


def publish_many(
    conn: AnyConnection, messages: Iterable[NewMessage]
) -> PublishedMany | Coroutine[Any, Any, PublishedMany]:
    """Publish any number of messages by COPY in the connection's transaction; return how many. Await it on an AsyncConnection.

    The messages are streamed, and become available in their order. All are published or none, but for those that a full topic drops.
    COPY gives no ids back and knows no `on_conflict`: whoever needs one calls `publish` for each, best within `conn.pipeline()`.

    Raises:
        PublishRefused: says which message; none was published, and the transaction can still be used.
        NotAdmitted: a policy of one of the topics is against it; none was published, and the transaction can still be used.
        psycopg.Error: the server refused a row for another reason, or is gone.
    """
    match conn:
        case psycopg.AsyncConnection():
            sending = trace_context.begin_sending(conn)
            return _copy_async(conn, Rows(messages, sending), sending)
        case psycopg.Connection():
            sending = trace_context.begin_sending(conn)
            return _copy(conn, Rows(messages, sending), sending)
        case _:
            raise _unknown_connection(conn)


def _unknown_connection(conn: object) -> TypeError:
    return TypeError(
        f"publish needs a psycopg Connection or AsyncConnection, not a {type(conn).__module__}.{type(conn).__qualname__}"
    )


def _publishing(message: NewMessage, columns: dict[str, Any]) -> Steps:
    """Yield the statements that publish one message, and return what came of it.

    As a rule that is one, which inserts nothing if the topic has another schema than was known. What was known may be old: nothing is
    refused before it was asked for.
    """
    topic = message.topic
    known, is_fresh = known_schema.recall(topic), False
    for _ in range(TRIES):
        problems = known.problems(columns)
        if problems and is_fresh:
            raise InvalidPayload(topic, problems)
        found = None if problems else (yield _insert(columns, message, known))
        if found is not None:
            return Published(*found)
        digest, text = (yield known_schema.READ, {"topic": topic}) or (None, None)
        if digest == known.digest and not problems:
            return Published(None, "dropped")
        known, is_fresh = known_schema.remember(topic, digest, text), True
    raise PublishRefused(f"the payload_schema of topic {topic} changed {TRIES} times meanwhile: try again")


def _take(conn: psycopg.Connection[Any], steps: Steps, statement: Statement, sending: Untraced | Sending) -> Published:
    with sending:
        return sending.sent(_ask(conn, steps, statement))


async def _take_async(
    conn: psycopg.AsyncConnection[Any], steps: Steps, statement: Statement, sending: Untraced | Sending
) -> Published:
    with sending:
        return sending.sent(await _ask_async(conn, steps, statement))


def _ask(conn: psycopg.Connection[Any], steps: Steps, statement: Statement) -> Published:
    # A cursor of our own: the caller's row and cursor factories would change what comes back.
    cursor = psycopg.Cursor(conn, row_factory=tuple_row)
    while True:
        try:
            found = cursor.execute(*statement).fetchone()
        except psycopg.Error as error:
            raise _in_our_words(error) from error
        try:
            statement = steps.send(found)
        except StopIteration as end:
            return _published(end)


async def _ask_async(conn: psycopg.AsyncConnection[Any], steps: Steps, statement: Statement) -> Published:
    cursor = psycopg.AsyncCursor(conn, row_factory=tuple_row)
    while True:
        try:
            found = await (await cursor.execute(*statement)).fetchone()
        except psycopg.Error as error:
            raise _in_our_words(error) from error
        try:
            statement = steps.send(found)
        except StopIteration as end:
            return _published(end)


def _published(end: StopIteration) -> Published:
    published: Published = end.value
    return published


REFUSALS = (TopicFull, PublishRateExceeded, TopicNotRegistered, PayloadTooLarge, TopicReserved)
KEYS = ("message_key", "held_key_pkey")


def _in_our_words(error: psycopg.Error) -> Exception:
    """Return what the error of the server means, itself if it is none of a policy."""
    said = ": ".join(filter(None, [error.diag.message_primary, error.diag.message_hint]))
    for kind in REFUSALS:
        if error.sqlstate == kind.sqlstate:
            return kind(said)
    if (
        error.sqlstate == KeyTaken.sqlstate
        and error.diag.constraint_name in KEYS
        and error.diag.schema_name == "messages"
    ):
        return KeyTaken(
            said if error.diag.message_hint else "a message with this key waits already: nothing was published"
        )
    return error


# Said, since nothing else tells the server what a parameter of a SELECT is.
TYPES = {
    "priority": "int",
    "payload": "jsonb",
    "body": "bytea",
    "headers": "jsonb",
    "max_attempts": "int",
    "available_at": "timestamptz",
    "delay": "interval",
    "ttl": "interval",
}


# While no topic has a policy that publishing must look at, it has no schema either: to know that costs next to nothing.
SCHEMA_IS_KNOWN = """
    CASE WHEN pg_sequence_last_value('messages.policed'::regclass) = 1 THEN %(known_schema)s::text IS NULL
    ELSE messages.schema_digest(%(topic)s::text) IS NOT DISTINCT FROM %(known_schema)s::text END
"""


def _insert(columns: dict[str, Any], message: NewMessage, known: KnownSchema) -> Statement:
    """Return the statement that publishes one message, if its topic has the schema that is known."""
    values = dict(columns)
    if isinstance(values.get("available_at"), timedelta):
        values["delay"] = values.pop("available_at")
    given = {name: f"%({name})s::{TYPES.get(name, 'text')}" for name in values}
    publish = _by_function(given, message) if message.on_conflict != "error" else _by_row(given)
    return publish.format(SCHEMA_IS_KNOWN).encode(), values | {"known_schema": known.digest}


def _by_row(given: dict[str, str]) -> str:
    """Columns that were not given are not named: the server's defaults hold."""
    columns = dict(given)
    if delay := columns.pop("delay", None):
        columns["available_at"] = f"clock_timestamp() + {delay}"
    if ttl := columns.pop("ttl", None):
        columns["expires_at"] = f"greatest({columns.get('available_at', 'NULL')}, clock_timestamp()) + {ttl}"
    return (
        f"INSERT INTO messages.message ({', '.join(columns)}) SELECT {', '.join(columns.values())} WHERE {{}} "
        "RETURNING id, 'inserted'"
    )


def _by_function(given: dict[str, str], message: NewMessage) -> str:
    arguments = ", ".join(f"p_{name} => {value}" for name, value in given.items())
    mode = message.on_conflict  # one of ON_CONFLICT, which row() has checked
    return f"SELECT p.id, p.what FROM messages.publish(p_on_conflict => '{mode}', {arguments}) AS p WHERE {{}}"  # noqa: S608


UNTIMED = ("topic", "channel", "key", "priority", "payload", "body", "headers", "max_attempts")
TIMES = ("available_at", "expires_at")
# The clock is read after the transaction has its number: a row must not seem older than its transaction, or claims look for it too late.
BEGIN = b"SELECT clock_timestamp(), (" + known_schema.READ_ALL + b") FROM pg_current_xact_id()"


def _copy(conn: psycopg.Connection[Any], rows: Rows, sending: Untraced | Sending) -> PublishedMany:
    published = 0
    with sending, psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        cursor.execute(b"SELECT")  # joins, or begins, the caller's transaction; without it the next line would commit
        try:
            with conn.transaction():
                cursor.execute(BEGIN)
                for statement, blocks in rows.copies(cursor.fetchone()):
                    with cursor.copy(statement) as copy:
                        for block in blocks:
                            copy.write(block)
                    published += cursor.rowcount
        except psycopg.Error as error:
            raise _in_our_words(error) from error
        return sending.sent_many(PublishedMany(published, rows.count - published))


async def _copy_async(conn: psycopg.AsyncConnection[Any], rows: Rows, sending: Untraced | Sending) -> PublishedMany:
    published = 0
    with sending:
        async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
            await cursor.execute(b"SELECT")
            try:
                async with conn.transaction():
                    await cursor.execute(BEGIN)
                    for statement, blocks in rows.copies(await cursor.fetchone()):
                        async with cursor.copy(statement) as copy:
                            for block in blocks:
                                await copy.write(block)
                        published += cursor.rowcount
            except psycopg.Error as error:
                raise _in_our_words(error) from error
        return sending.sent_many(PublishedMany(published, rows.count - published))


class Rows:
    """Messages as the text of at most two COPYs.

    The first leaves the times to the server's defaults. From the first message on that has a time of its own, a second one gives all of
    them: the server's clock as it was read before, plus what has passed since.
    """

    def __init__(self, messages: Iterable[NewMessage], sending: Untraced | Sending = UNTRACED) -> None:
        self.count = 0
        self._carry = sending.carry
        self._schemas = Schemas(None)
        self._rows = self._checked(messages)
        self._next = next(self._rows, None)

    def copies(self, found: tuple[Any, ...] | None) -> Iterator[tuple[bytes, Iterator[bytes]]]:
        """Yield each COPY statement and its blocks of text. found: what BEGIN returned, the server's clock and all schemas."""
        assert found is not None  # noqa: S101 - BEGIN returns a row
        started, clock = time.monotonic(), found[0]
        self._schemas = Schemas(found[1])

        def now() -> datetime:
            moment: datetime = clock + timedelta(seconds=time.monotonic() - started)
            return moment

        if self._next is not None and not self._is_timed(self._next):
            yield _copy_statement(UNTIMED), _blocks(self._lines_untimed())
        if self._next is not None:
            yield _copy_statement(UNTIMED + TIMES), _blocks(self._lines_timed(now))

    def _checked(self, messages: Iterable[NewMessage]) -> Iterator[dict[str, Any]]:
        for number, message in enumerate(messages, 1):
            try:
                columns = {"priority": DEFAULT_PRIORITY} | _row_of_many(message)
                yield columns if self._carry is None else self._carry(columns)
            except PublishRefused as error:
                raise PublishRefused(f"message number {number}: {error}") from error

    @staticmethod
    def _is_timed(row: dict[str, Any]) -> bool:
        return "available_at" in row or "ttl" in row

    def _lines_untimed(self) -> Iterator[bytes]:
        while self._next is not None and not self._is_timed(self._next):
            yield self._line(self._next, UNTIMED)
            self._advance()

    def _lines_timed(self, now: Callable[[], datetime]) -> Iterator[bytes]:
        while (row := self._next) is not None:
            yield self._line(row | _times(row, now()), UNTIMED + TIMES)
            self._advance()

    def _line(self, row: dict[str, Any], columns: tuple[str, ...]) -> bytes:
        try:
            self._schemas.check(row)
        except InvalidPayload as error:
            raise InvalidPayload(f"{row['topic']} (message number {self.count + 1})", error.problems) from error
        return _line(row, columns)

    def _advance(self) -> None:
        self.count += 1
        self._next = next(self._rows, None)


def _row_of_many(message: NewMessage) -> dict[str, Any]:
    if message.on_conflict != "error":
        raise PublishRefused(f"on_conflict {message.on_conflict!r} is not for many at once: call publish for each")
    return row(message)


def _times(row: dict[str, Any], now: datetime) -> dict[str, datetime]:
    wait = row.get("available_at", timedelta(0))
    available_at = now + wait if isinstance(wait, timedelta) else wait
    times = {"available_at": available_at}
    return times | {"expires_at": max(available_at, now) + row["ttl"]} if "ttl" in row else times


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
