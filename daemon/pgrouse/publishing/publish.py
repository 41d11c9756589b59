"""Publish messages from Python, in the caller's transaction: a message exists if and only if the caller commits.

`publish(conn, "orders.created", {"id": 7})` inserts one and returns its id; `publish_many(conn, messages)` streams any
number by COPY. Both take connections of psycopg, SQLAlchemy, Django and asyncpg, and return an awaitable on an async
connection. A message that cannot be published is refused, and the caller's transaction stays usable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from pgrouse.errors import InvalidMessage, InvalidPayload, PublishConflict
from pgrouse.publishing import schema_cache
from pgrouse.publishing.copy_rows import READ_START, CallPart, CopyRows, read_ids, read_outcomes
from pgrouse.publishing.drivers import driver_of
from pgrouse.publishing.new_message import (
    NewMessage,
    OnConflict,
    PublishOptions,
    check_append,
    plain_columns,
    to_columns,
)
from pgrouse.publishing.publish_statement import publish_statement
from pgrouse.publishing.published import Published, PublishedMany
from pgrouse.publishing.schema_cache import CachedSchema
from pgrouse.publishing.server_errors import DEADLOCK, ErrorTranslation, ServerError, sqlstate_of
from pgrouse.publishing.statement import Statement
from pgrouse.publishing.tracked_coroutine import TrackedCoroutine
from pgrouse.telemetry import trace_context
from pgrouse.telemetry.trace_context import NoTrace

if TYPE_CHECKING:
    import psycopg

    from pgrouse.crypto.cipher import Cipher
    from pgrouse.publishing.drivers.connection_types import AnyAsyncConnection, AnyBlockingConnection
    from pgrouse.publishing.drivers.driver import Driver
    from pgrouse.telemetry.publish_span import PublishSpan

T = TypeVar("T")
# Checking a larger payload against a schema would block an event loop for too long.
LARGE_CHARS = 262_144
# How often a topic's schema may change while one message is published.
TRIES = 20
# How often many messages may meet a deadlock, each of which takes deadlock_timeout. If this transaction held a key
# before, all tries meet one.
DEADLOCK_TRIES = 4

# Checks the columns of a message against a schema.
Check = Callable[[CachedSchema, dict[str, Any]], Coroutine[Any, Any, list[str]]]


@overload
def publish(  # type: ignore[overload-overlap]  # an async connection of SQLAlchemy has all that a blocking one has
    conn: AnyAsyncConnection,
    topic: str,
    payload: Any = None,
    *,
    cipher: Cipher | None = None,
    **options: Unpack[PublishOptions],
) -> Coroutine[Any, Any, Published]: ...


@overload
def publish(
    conn: AnyBlockingConnection,
    topic: str,
    payload: Any = None,
    *,
    cipher: Cipher | None = None,
    **options: Unpack[PublishOptions],
) -> Published: ...


def publish(
    conn: Any, topic: str, payload: Any = None, *, cipher: Cipher | None = None, **options: Unpack[PublishOptions]
) -> Published | Coroutine[Any, Any, Published]:
    """Publish one message in the connection's transaction and return its id; await it on an async connection.

    Args:
        conn: the caller's connection: of psycopg, or one of its cursors; a Connection or Session of SQLAlchemy or their
            async kinds; of Django; of asyncpg. This call commits nothing, unless the connection is in autocommit mode.
        topic: what kind of message it is.
        payload: any value with a JSON form, pydantic models and dataclasses too. A str is a JSON string; it is not
            parsed.
        cipher: encrypts the payload or body, if the topic is one of the cipher's topics.
        **options: see the attributes of NewMessage.

    Raises:
        InvalidMessage: raised at the call, also on an async connection; nothing was sent.
        InvalidPayload: the payload does not match the payload_schema of its topic; nothing was published, the
            transaction can still be used.
        PublishRejected: a policy of the topic forbids it: TopicFull, PublishRateExceeded, TopicClosed, PayloadTooLarge,
            KeyTaken. The transaction has failed.
        psycopg.Error, or the error of another driver: the server refused the row for another reason (no right), or is
        gone.
        TypeError: the connection is of no such kind.
    """
    driver = driver_of(conn)
    columns = (
        to_columns(NewMessage(topic=topic, payload=payload, **options)) if options else plain_columns(topic, payload)
    )
    on_conflict = options.get("on_conflict", "error")
    check_append(topic, on_conflict, cipher)
    sending = trace_context.start_publish_span(conn, topic)
    return _run(driver, _publish(driver, columns, on_conflict, sending, _check_inline, cipher), topic)


async def publish_columns(
    conn: psycopg.AsyncConnection[Any],
    columns: dict[str, Any],
    on_conflict: OnConflict = "error",
    cipher: Cipher | None = None,
) -> Published:
    """Publish columns that `row` has checked already, as `publish` does.

    A thread checks a large payload against its schema.

    Raises:
        InvalidPayload, PublishRejected, psycopg.Error: as publish.
    """
    check_append(columns["topic"], on_conflict, cipher)
    check = _check_in_thread if len(columns.get("payload", "")) > LARGE_CHARS else _check_inline
    sending = trace_context.start_publish_span(conn, columns["topic"])
    return await _publish(driver_of(conn), columns, on_conflict, sending, check, cipher)


@overload
def publish_many(  # type: ignore[overload-overlap]  # as of publish
    conn: AnyAsyncConnection,
    messages: Iterable[NewMessage],
    *,
    cipher: Cipher | None = None,
    returning: Literal[False] = False,
) -> Coroutine[Any, Any, PublishedMany]: ...


@overload
def publish_many(  # type: ignore[overload-overlap]  # as of publish
    conn: AnyAsyncConnection, messages: Iterable[NewMessage], *, cipher: Cipher | None = None, returning: Literal[True]
) -> Coroutine[Any, Any, list[Published]]: ...


@overload
def publish_many(
    conn: AnyBlockingConnection,
    messages: Iterable[NewMessage],
    *,
    cipher: Cipher | None = None,
    returning: Literal[False] = False,
) -> PublishedMany: ...


@overload
def publish_many(
    conn: AnyBlockingConnection,
    messages: Iterable[NewMessage],
    *,
    cipher: Cipher | None = None,
    returning: Literal[True],
) -> list[Published]: ...


def publish_many(
    conn: Any, messages: Iterable[NewMessage], *, cipher: Cipher | None = None, returning: bool = False
) -> PublishedMany | list[Published] | Coroutine[Any, Any, PublishedMany | list[Published]]:
    """Publish any number of messages by COPY in the connection's transaction; return how many.

    Await it on an async connection.

    The messages are streamed, and become available in their order. All are published or none, except those that a full
    topic drops. The iterable may read from the same blocking connection. If it is a list or tuple, each message is
    encoded while the server stores the messages before it, which halves the time. With `returning` the result is a
    list: what `publish` would have returned for each message, in their order. COPY returns no ids, so this is an INSERT
    for each 500 messages. SQLAlchemy and Django have no COPY on drivers other than psycopg and asyncpg; there, INSERTs
    are always used. A `cipher` encrypts the messages whose topics are the cipher's topics.

    From the first message on that has `on_conflict`, `debounce`, `throttle`, `after` or `expect_result`, a statement
    for each 500 messages publishes them as `publish` does, in the order of their topics and keys: two callers with the
    same keys wait for each other. This takes some ten times as long as COPY.

    Raises:
        InvalidMessage: with the number of the message; none was published, and the transaction can still be used.
        PublishRejected: a policy of one of the topics forbids it; none was published, and the transaction can still be
            used.
        psycopg.Error, or the error of another driver: the server refused a row for another reason, or is gone.
        TypeError: the connection is of no known driver.
    """
    driver = driver_of(conn)
    sending = trace_context.start_publish_span(conn)
    rows = CopyRows(messages, sending, cipher)
    if returning:
        return _run(driver, _publish_with_ids(driver, rows, sending), None)
    return _run(driver, _publish_many(driver, rows, sending), None)


def _run(driver: Driver, coroutine: Coroutine[Any, Any, T], topic: str | None) -> T | Coroutine[Any, Any, T]:
    """Run it, or return an awaitable, which logs an error if it is never awaited.

    topic: the topic of the message, if there is only one.
    """
    return TrackedCoroutine(coroutine, topic) if driver.is_async else driver.run(coroutine)


async def _publish(
    driver: Driver,
    columns: dict[str, Any],
    on_conflict: OnConflict,
    sending: NoTrace | PublishSpan,
    check: Check,
    cipher: Cipher | None,
) -> Published:
    traced = columns if sending.carry is None else sending.carry(columns)
    with sending, ErrorTranslation(lambda _: (columns["topic"], columns.get("key")), driver.schema):
        return sending.sent(await _insert(driver, traced, on_conflict, check, cipher))


async def _insert(
    driver: Driver, columns: dict[str, Any], on_conflict: OnConflict, check: Check, cipher: Cipher | None
) -> Published:
    """Publish one message. A message that is checked against its schema is not encrypted yet.

    Usually that is one statement, which inserts nothing if the topic has another schema than the cached one. The cached
    schema may be old, so this refuses nothing before it has asked the server.
    """
    topic = columns["topic"]
    stored = columns if cipher is None else cipher.encrypt_columns(columns)
    known, is_fresh = schema_cache.get(topic), False
    for _ in range(TRIES):
        problems = [] if known.text is None else await check(known, columns)
        if problems and is_fresh:
            raise InvalidPayload(topic, problems)
        found = None if problems else await driver.fetch_row(publish_statement(stored, on_conflict, known))
        if found is not None:
            return Published(*found)
        digest, text = await driver.fetch_row(Statement(schema_cache.READ, {"topic": topic})) or (None, None)
        if digest == known.digest and not problems:
            return Published(None, "dropped")
        known, is_fresh = schema_cache.put(topic, digest, text), True
    raise InvalidMessage(f"the payload_schema of topic {topic} changed {TRIES} times in the meantime: try again")


async def _publish_many(driver: Driver, rows: CopyRows, sending: NoTrace | PublishSpan) -> PublishedMany:
    with sending:
        return sending.sent_many(await _repeat_after_deadlocks(driver, rows, _copy))


async def _publish_with_ids(driver: Driver, rows: CopyRows, sending: NoTrace | PublishSpan) -> list[Published]:
    with sending:
        published = await _repeat_after_deadlocks(driver, rows, _insert_with_ids)
        sending.sent_many(PublishedMany.of(published))
        return published


async def _repeat_after_deadlocks(
    driver: Driver, rows: CopyRows, publish_all: Callable[[Driver, CopyRows], Coroutine[Any, Any, T]]
) -> T:
    """Publish the rows, once more after a deadlock.

    They are inserted in the order of the messages, which may differ from that of their keys.

    The server has undone all of it, and the other transaction continues. The next try waits for that one.
    """
    for _ in range(DEADLOCK_TRIES):
        try:
            return await publish_all(driver, rows)
        except PublishConflict as error:
            again = rows.again() if sqlstate_of(error) == DEADLOCK else None
            if again is None:
                raise
            rows = again
    return await publish_all(driver, rows)


async def _copy(driver: Driver, rows: CopyRows) -> PublishedMany:
    def find_key(error: ServerError) -> tuple[str, str] | None:
        return None if error.line is None else rows.key_of(error.line)

    copied, called = 0, PublishedMany(0, 0)
    with ErrorTranslation(find_key, driver.schema):
        async with driver.bulk() as bulk:
            for part in rows.parts(await bulk.fetch_row(READ_START)):
                if isinstance(part, CallPart):
                    called = PublishedMany.of([each async for each in _call(bulk, part)])
                else:
                    copied += await bulk.copy_in(part)
    return PublishedMany(copied + called, rows.count - copied - called - called.ignored, called.ignored)


async def _insert_with_ids(driver: Driver, rows: CopyRows) -> list[Published]:
    published: list[Published] = []
    with ErrorTranslation(lambda _: None, driver.schema):
        async with driver.bulk() as bulk:
            for part in rows.parts(await bulk.fetch_row(READ_START)):
                if isinstance(part, CallPart):
                    published += [each async for each in _call(bulk, part)]
                    continue
                for topics, insert in part.inserts_with_ids():
                    published += read_ids(topics, *(await bulk.fetch_row(insert) or (None, None)))
    return published


async def _call(bulk: Driver, part: CallPart) -> AsyncIterator[Published]:
    for call in part.calls():
        for each in read_outcomes(*(await bulk.fetch_row(call) or ("",))):
            yield each


async def _check_inline(known: CachedSchema, columns: dict[str, Any]) -> list[str]:
    return known.problems(columns)


async def _check_in_thread(known: CachedSchema, columns: dict[str, Any]) -> list[str]:
    return await asyncio.to_thread(known.problems, columns)
