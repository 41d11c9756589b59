"""publish and publish_many do the same on the connections of every driver.

They join the transaction, and change no value.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import asyncpg
import django.db
import psycopg
import pytest
import sqlalchemy
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from pgrouse import MessageResult, NewMessage, publish, publish_many, wait_for
from pgrouse.crypto.envelope import ENCRYPTED_BY
from pgrouse.errors import (
    InvalidMessage,
    InvalidPayload,
    KeyTaken,
    PgrouseError,
    PublishConflict,
    SchemaMismatch,
    TopicClosed,
    TopicFull,
)
from pgrouse.publishing.drivers import django_driver, sqlalchemy_driver
from pgrouse.values.printable import INVISIBLE
from tests.drivers.callers import CALLERS, DISTINCT, Caller, django_connection, for_asyncpg, url
from tests.server.postgres import Database

Open = Callable[[], AbstractContextManager[Caller]]
Connection = psycopg.Connection[Any]
BLOCKING = ("psycopg", "sqlalchemy", "django")


@pytest.fixture
def table(shared: Database) -> Iterator[Connection]:
    """An autocommit connection to it, with an empty queue."""
    with psycopg.connect(shared.dsn, autocommit=True) as conn:
        conn.execute("DELETE FROM messages.message")
        conn.execute(
            "DELETE FROM messages.topic WHERE topic <> '*'; DELETE FROM messages.depth; DELETE "
            "FROM messages.depth_change"
        )
        conn.execute("UPDATE messages.topic SET accept_publishes = true WHERE topic = '*'")
        yield conn


@pytest.fixture(params=CALLERS)
def caller(request: pytest.FixtureRequest, shared: Database) -> Open:
    """`with caller() as it`: a caller's transaction, by each driver."""
    return lambda: CALLERS[request.param](shared.dsn)


@pytest.fixture(params=DISTINCT)
def distinct(request: pytest.FixtureRequest, shared: Database) -> Open:
    """The same, but each way to execute only once."""
    return lambda: CALLERS[request.param](shared.dsn)


@pytest.fixture(params=["sqlalchemy", "sqlalchemy async asyncpg", "django"])
def without_copy(request: pytest.FixtureRequest, shared: Database, monkeypatch: pytest.MonkeyPatch) -> Open:
    """The same on drivers that are not known, such as psycopg2 and pg8000."""
    for module in (sqlalchemy_driver, django_driver):
        monkeypatch.setattr(module, "find_driver", lambda *_: None)
    return lambda: CALLERS[request.param](shared.dsn)


def stored(table: Connection, columns: str = "topic, payload") -> list[tuple[Any, ...]]:
    return table.execute(f"SELECT {columns} FROM messages.message ORDER BY id".encode()).fetchall()


class Rollback(Exception):
    """The caller changes their mind."""


# The transaction


def test_a_message_is_visible_when_the_caller_commits_and_not_before(caller: Open, table: Connection) -> None:
    with caller() as it:
        published = it.publish("orders", {"id": 7})
        many = it.publish_many([NewMessage(topic="mails", payload=n, delay=timedelta(n)) for n in range(3)])
        before = stored(table)

    assert before == []
    assert (published.outcome, many) == ("inserted", 3)
    assert stored(table, "id, topic, payload")[0] == (published, "orders", {"id": 7})
    assert stored(table)[1:] == [("mails", 0), ("mails", 1), ("mails", 2)]


def test_a_rollback_takes_one_and_many_back(caller: Open, table: Connection) -> None:
    with pytest.raises(Rollback), caller() as it:  # noqa: PT012 - the block is a transaction
        it.publish("orders")
        it.publish_many([NewMessage(topic="mails")])
        raise Rollback

    assert stored(table) == []


@pytest.mark.parametrize("name", BLOCKING)
def test_many_messages_may_be_read_from_the_same_connection(shared: Database, table: Connection, name: str) -> None:
    def read() -> Iterator[NewMessage]:
        for n in range(3):
            it.execute(f"SELECT {n}")
            yield NewMessage(topic="t", payload=n, delay=timedelta(n))

    with CALLERS[name](shared.dsn) as it:
        count = it.publish_many(read())

    assert (count, len(stored(table))) == (3, 3)


def test_many_tell_what_became_of_each(caller: Open, table: Connection) -> None:
    with caller() as it:
        rows = [NewMessage(topic="t", key=key, on_conflict="replace", payload="%s:é") for key in ("b", "a", "b")]
        results = it.publish_many([NewMessage(topic="t"), *rows], returning=True)

    assert [each.outcome for each in results] == ["inserted", "inserted", "inserted", "replaced"]
    assert results[3] == results[1]
    assert stored(table, "id, payload")[1:] == [(results[2], "%s:é"), (results[1], "%s:é")]


def test_publish_many_can_be_the_first_statement_of_a_transaction(caller: Open, table: Connection) -> None:
    with pytest.raises(Rollback), caller() as it:  # noqa: PT012 - the block is a transaction
        it.publish_many([NewMessage(topic="t")])
        raise Rollback
    with caller() as it:
        it.publish_many([NewMessage(topic="t")])

    assert len(stored(table)) == 1


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_a_connection_that_streams_its_results_publishes_too(shared: Database, table: Connection, driver: str) -> None:
    engine = create_async_engine(
        url(shared.dsn, driver), poolclass=NullPool, execution_options={"stream_results": True}
    )

    async def use() -> None:
        async with engine.begin() as conn:
            await publish(conn, "t", 1)
            await publish_many(conn, [NewMessage(topic="t", payload=n) for n in (2, 3)])

    asyncio.run(use())
    assert stored(table) == [("t", 1), ("t", 2), ("t", 3)]
    with sqlalchemy.create_engine(url(shared.dsn, "psycopg"), poolclass=NullPool).connect() as plain:
        publish(plain.execution_options(stream_results=True), "t", 4)
        plain.commit()
    assert stored(table)[3:] == [("t", 4)]


def test_other_statements_of_the_caller_are_in_the_same_transaction(distinct: Open, table: Connection) -> None:
    table.execute("DROP TABLE IF EXISTS orders; CREATE TABLE orders (id int)")
    for end in (Rollback, None):
        try:
            with distinct() as it:
                it.execute("INSERT INTO orders VALUES (7)")
                it.publish("orders")
                it.publish_many([NewMessage(topic="mails")])
                if end is not None:
                    raise end
        except Rollback:
            pass

    assert table.execute("SELECT id FROM orders").fetchall() == [(7,)]
    assert stored(table, "topic") == [("orders",), ("mails",)]


def autocommitting(dsn: str) -> Iterator[Caller]:
    parts: Any = {"poolclass": NullPool, "isolation_level": "AUTOCOMMIT"}
    with sqlalchemy.create_engine(url(dsn, "psycopg"), **parts).connect() as conn:
        yield Caller(conn, print)
    conn = django_connection(dsn, "autocommit")
    yield Caller(conn, print)
    conn.close()
    with asyncio.Runner() as runner:
        pg = runner.run(asyncpg.connect(**for_asyncpg(dsn)))
        yield Caller(pg, print, runner.run)
        runner.run(pg.close())


def test_in_autocommit_mode_each_call_is_a_transaction_of_its_own(shared: Database, table: Connection) -> None:
    for it in autocommitting(shared.dsn):
        table.execute("DELETE FROM messages.message")
        it.publish("t", 1)
        it.publish_many([NewMessage(topic="t", payload=2)])
        with pytest.raises(KeyTaken):
            it.publish_many([NewMessage(topic="t"), *[NewMessage(topic="t", key="k", delay=timedelta(1))] * 2])

        assert stored(table) == [("t", 1), ("t", 2)], it.conn


# Values

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e12, 1e12) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
LABELS = st.none() | st.text(
    st.characters(exclude_categories=["Cs"]).filter(lambda each: not re.search(f"[{INVISIBLE}]", each)),
    min_size=1,
    max_size=20,
)
DAY = timedelta(days=1)
MOMENTS = st.datetimes(
    datetime(1971, 1, 1),  # noqa: DTZ001
    datetime(8000, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7.5))]),
)


@st.composite
def messages(draw: Any) -> NewMessage:
    is_body, is_timed = draw(st.booleans()), draw(st.booleans())
    return NewMessage(
        topic=draw(st.sampled_from(["t", "A-9._:x"])),
        payload=None if is_body else draw(JSON),
        body=draw(st.binary(max_size=40)) if is_body else None,
        headers=draw(st.none() | st.dictionaries(TEXTS.filter(lambda name: name != ENCRYPTED_BY), JSON, max_size=2)),
        key=draw(LABELS),
        channel=draw(LABELS),
        priority=draw(st.none() | st.integers(0, 9)),
        available_at=draw(MOMENTS) if is_timed else None,
        ttl=draw(st.none() | st.timedeltas(timedelta(0), 300_000 * DAY).filter(lambda ttl: ttl <= 36_500 * DAY)),
        max_attempts=draw(st.none() | st.integers(0, 2**31 - 1)),
        timeout=draw(st.none() | st.timedeltas(timedelta(milliseconds=1), 30 * DAY)),
        backoff=draw(st.sampled_from((None, "linear", {"kind": "constant", "base": "1m"}))),
        retention=draw(st.none() | st.timedeltas(timedelta(hours=1), 36_500 * DAY)),
    )


SHOWN = (
    "payload::text, body, headers::text, key, channel, priority, available_at, expires_at - "
    "greatest(available_at, created_at), max_attempts, extract(epoch FROM timeout), backoff::text, "
    "extract(epoch FROM retention)"
)


def is_stored_as(message: NewMessage, row: tuple[Any, ...]) -> None:
    """The row has the values of the message, and the table's defaults for values that were not given."""
    payload, body, headers, key, channel, priority, available_at, life, max_attempts, timeout, backoff, retention = row
    assert (key, channel, max_attempts) == (message.key, message.channel, message.max_attempts)
    for seconds, asked in ((timeout, message.timeout), (retention, message.retention)):
        assert (seconds and timedelta(microseconds=int(seconds * 1_000_000))) == asked
    assert (backoff and json.loads(backoff)) == ({"kind": "linear"} if message.backoff == "linear" else message.backoff)
    assert priority == (5 if message.priority is None else message.priority)
    assert body == message.body
    assert (payload is None) == (body is not None)
    assert payload is None or json.loads(payload) == message.payload
    assert (headers and json.loads(headers)) == (None if message.headers is None else dict(message.headers))
    assert message.available_at is None or available_at == message.available_at
    assert (life is None) == (message.ttl is None)
    assert message.ttl is None or abs(life - message.ttl) < timedelta(minutes=1)


@settings(
    max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None, phases=[Phase.generate]
)
@given(given_messages=st.lists(messages(), min_size=1, max_size=8, unique_by=lambda message: message.key))
def test_every_value_is_stored_unchanged_through_each_driver(
    shared: Database, table: Connection, given_messages: list[NewMessage]
) -> None:
    for name in DISTINCT:
        table.execute("DELETE FROM messages.message")
        with CALLERS[name](shared.dsn) as it:
            for message in given_messages:
                it.publish(**{field: getattr(message, field) for field in NewMessage.__slots__})
            it.publish_many(replace(message, topic="many") for message in given_messages)

        rows = stored(table, SHOWN)
        assert len(rows) == 2 * len(given_messages), name
        for message, row in zip(given_messages * 2, rows, strict=True):
            is_stored_as(message, row)


def test_a_delay_has_its_exact_length_in_every_driver(distinct: Open, table: Connection) -> None:
    # In this zone some days have 23 hours and some 25; between today and one of these days the clocks change.
    delays = [timedelta(days=days, microseconds=1) for days in (100, 200, 300)]
    with distinct() as it:
        it.execute("SET LOCAL timezone = 'Europe/Berlin'")
        for delay in delays:
            it.publish("t", delay=delay)
            it.publish("t", key=str(delay), on_conflict="replace", delay=delay)
            it.publish_many([NewMessage(topic="t", delay=delay)])

    waits = stored(table, "extract(epoch FROM available_at) - extract(epoch FROM created_at)")
    wanted = [delay.total_seconds() for delay in delays for _ in range(3)]
    assert all(abs(float(wait) - want) < 60 for (wait,), want in zip(waits, wanted, strict=True))


@pytest.mark.parametrize("encoder", [json.dumps, str])
def test_codecs_of_the_user_change_nothing(shared: Database, table: Connection, encoder: Any) -> None:
    async def main() -> None:
        conn = await asyncpg.connect(**for_asyncpg(shared.dsn))
        for kind in ("json", "jsonb"):
            await conn.set_type_codec(kind, encoder=encoder, decoder=json.loads, schema="pg_catalog")
        await publish(conn, "t", {"a": [1, "x"]}, headers={"h": 1})
        await publish_many(conn, [NewMessage(topic="t", payload={"a": [1, "x"]}, headers={"h": 1})])
        await conn.close()

    asyncio.run(main())

    assert stored(table, "payload, headers") == [({"a": [1, "x"]}, {"h": 1})] * 2


# Errors


def test_a_taken_key_is_named_and_the_drivers_error_is_the_cause(distinct: Open, table: Connection) -> None:
    def publish_twice() -> None:
        with distinct() as it:
            it.publish("orders", key="a, (b)")
            it.publish("orders", key="a, (b)")

    with pytest.raises(KeyTaken, match=r"a message of topic orders with the key 'a, \(b\)' waits already") as caught:
        publish_twice()

    assert isinstance(caught.value.__cause__, Exception)
    assert stored(table) == []


@pytest.mark.parametrize("delay", [None, timedelta(1)])
def test_publish_many_names_the_taken_key_and_the_transaction_can_continue(
    distinct: Open, table: Connection, delay: timedelta | None
) -> None:
    many = [NewMessage(topic="t"), *[NewMessage(topic="t", key=key, delay=delay) for key in ("a", "b", "a")]]
    with distinct() as it:
        with pytest.raises(KeyTaken, match="a message of topic t with the key 'a' waits already"):
            it.publish_many(many)
        it.publish("after")

    assert stored(table, "topic") == [("after",)]


def test_a_publisher_that_cannot_read_keys_gets_the_taken_key_too(distinct: Open, table: Connection) -> None:
    many = [NewMessage(topic="t"), *[NewMessage(topic="t", key=key) for key in ("a", "b", "a")]]
    for delay in (None, timedelta(1)):
        with distinct() as it:
            it.execute("SET LOCAL ROLE messages_publisher")
            with pytest.raises(KeyTaken, match="a message of topic t with the key 'a' waits already"):
                it.publish_many(replace(each, delay=delay if each.key else None) for each in many)


def test_a_refusal_by_a_policy_is_an_error_of_pgrouse(distinct: Open, table: Connection) -> None:
    table.execute("INSERT INTO messages.topic (topic, max_depth, accept_publishes) VALUES ('t', 1, true)")
    table.execute("UPDATE messages.topic SET accept_publishes = false WHERE topic = '*'")

    with distinct() as it, pytest.raises(TopicFull, match="max_depth is 1"):
        it.publish_many([NewMessage(topic="t")] * 2)
    for kind, topic in ((TopicClosed, "other"), (TopicFull, "t")):
        with pytest.raises(kind), distinct() as it:  # noqa: PT012 - the block is a transaction
            it.publish("t")
            it.publish(topic)


def test_an_invalid_payload_is_refused_and_the_transaction_can_continue(distinct: Open, table: Connection) -> None:
    table.execute("INSERT INTO messages.topic (topic, payload_schema) VALUES ('t', '{\"type\": \"object\"}')")

    with distinct() as it:
        with pytest.raises(InvalidPayload):
            it.publish("t", 1)
        with pytest.raises(InvalidPayload, match="message number 2"):
            it.publish_many([NewMessage(topic="t", payload={}), NewMessage(topic="t", payload=1)])
        with pytest.raises(InvalidMessage, match="message number 2"):
            it.publish_many([NewMessage(topic="t", payload={}), NewMessage(topic="no topic")])
        assert it.publish("t", {}) > 0

    assert stored(table) == [("t", {})]


def test_any_other_error_is_the_drivers(shared: Database, table: Connection) -> None:
    expected = {
        "asyncpg": asyncpg.InsufficientPrivilegeError,
        "django": django.db.ProgrammingError,
        "sqlalchemy": sqlalchemy.exc.ProgrammingError,
    }
    for name, kind in expected.items():
        with pytest.raises(kind, match="permission denied"), CALLERS[name](shared.dsn) as it:  # noqa: PT012
            it.execute("SET LOCAL ROLE messages_analyst")
            it.publish("t")


def test_a_missing_schema_is_an_error_of_pgrouse_with_the_fix(empty_database: Database) -> None:
    for caller in CALLERS.values():
        for call in (lambda it: it.publish("t"), lambda it: it.publish_many([NewMessage(topic="t")])):
            with pytest.raises(SchemaMismatch, match="run `pgrouse migrate`"), caller(empty_database.dsn) as it:
                call(it)


# Ids of many


def test_many_give_their_ids_on_every_connection(distinct: Open, table: Connection) -> None:
    many = [NewMessage(topic="t", payload=n, delay=None if n < 700 else timedelta(1)) for n in range(1200)]

    with distinct() as it:
        published = it.publish_many(many, returning=True)

    assert stored(table, "id, payload") == [(each, n) for n, each in enumerate(published)]
    assert {each.outcome for each in published} == {"inserted"}


def test_what_a_full_topic_dropped_of_many_has_no_id(distinct: Open, table: Connection) -> None:
    table.execute(
        "INSERT INTO messages.topic (topic, max_depth, on_full) VALUES ('full', 2, 'drop'), ('none', 1, 'drop')"
    )
    table.execute("INSERT INTO messages.message (topic, payload) VALUES ('none', '1')")
    topics = ["full", "a", "none", "full", "full", "a", "full"]

    with distinct() as it:
        published = it.publish_many([NewMessage(topic=topic) for topic in topics], returning=True)
        dropped = it.publish_many([NewMessage(topic="none")] * 2, returning=True)

    assert [each.outcome == "inserted" for each in published] == [True, True, False, True, False, True, False]
    assert stored(table, "id, topic")[1:] == [
        (each, topic) for each, topic in zip(published, topics, strict=True) if each
    ]
    assert dropped == [0, 0]


def test_many_with_ids_are_published_or_none(distinct: Open, table: Connection) -> None:
    keyed = [NewMessage(topic="t", payload=n) for n in range(600)] + [NewMessage(topic="t", key="k")] * 2

    with distinct() as it:
        with pytest.raises(KeyTaken):
            it.publish_many(keyed, returning=True)
        none = it.publish_many([], returning=True)

    assert none == []
    assert stored(table) == []


# Waiting


def test_a_wait_on_every_connection_returns_the_result(distinct: Open, table: Connection) -> None:
    (published,) = (
        table.execute("INSERT INTO messages.message (topic, payload) VALUES ('t', '1') RETURNING id").fetchone() or ()
    )

    with distinct() as it:
        with pytest.raises(TimeoutError, match=f"message {published} had not ended after"):
            it.wait(wait_for(it.conn, published, 0.1))
        table.execute(
            "SELECT messages.complete(ARRAY[id], ARRAY[claim_id], ARRAY['[1]']::jsonb[]) "
            "FROM messages.claim('w', ARRAY['t'], 1)"
        )
        ending = it.wait(wait_for(it.conn, published, 30))

    archived = table.execute("SELECT archived_at FROM messages.message_archive WHERE id = %s", [published])
    (archived_at,) = archived.fetchone() or ()
    assert ending == MessageResult(published, "success", [1], None, 1, archived_at)


def test_a_wait_for_what_the_transaction_itself_published_is_refused(distinct: Open) -> None:
    with distinct() as it:
        published = it.publish("t")

        with pytest.raises(ValueError, match="the transaction of this connection has written something"):
            it.wait(wait_for(it.conn, published))


# Drivers without COPY


def test_without_copy_publish_many_inserts_in_order(without_copy: Open, table: Connection) -> None:
    texts = ["ü \\ \\N \n \t ' \" {} % %(x)s :y \u2028", "x" * 400_000]
    many = [NewMessage(topic="t", payload=n, body=None) for n in range(1200)]
    many += [
        NewMessage(topic="t", payload=text, headers={"h": "x"}, channel="c", key=text[:1], delay=timedelta(1))
        for text in texts
    ]
    many += [
        NewMessage(topic="t", body=b"\x00\xff", ttl=timedelta(1)),
        NewMessage(topic="t", body=b"", max_attempts=3, priority=0),
    ]

    with without_copy() as it:
        assert it.publish_many(many) == 1204

    assert [payload for (payload,) in stored(table, "payload")] == [*range(1200), *texts, None, None]
    assert stored(table, "body, priority, max_attempts")[-2:] == [(b"\x00\xff", 5, None), (b"", 0, 3)]
    assert stored(table, "headers, channel, available_at > created_at")[1200] == ({"h": "x"}, "c", True)


def test_without_copy_all_are_published_or_none_too(without_copy: Open, table: Connection) -> None:
    table.execute("INSERT INTO messages.topic (topic, max_depth, on_full) VALUES ('full', 1, 'drop')")
    keyed = [NewMessage(topic="t", payload=n) for n in range(600)] + [NewMessage(topic="t", key="k")] * 2

    with without_copy() as it:
        with pytest.raises(KeyTaken, match="with the key 'k'"):
            it.publish_many(keyed)
        many = it.publish_many([NewMessage(topic="full")] * 3)

    assert (many, many.dropped) == (1, 2)
    assert stored(table, "topic") == [("full",)]


# Supported connections


def test_an_object_that_is_no_connection_is_refused_by_its_type(shared: Database) -> None:
    engine = sqlalchemy.create_engine(url(shared.dsn, "psycopg"), poolclass=NullPool)
    for wrong in (engine, shared.dsn, None):
        with pytest.raises(
            TypeError, match=r"not a (sqlalchemy.*Engine|builtins.str|builtins.NoneType); of an engine or a pool"
        ):
            publish(wrong, "t")  # type: ignore[call-overload]


def test_another_database_than_postgresql_is_refused() -> None:
    with sqlalchemy.create_engine("sqlite://").connect() as conn, pytest.raises(TypeError, match="leads to sqlite"):
        publish(conn, "t")
    with Session(sqlalchemy.create_engine("sqlite://")) as session, pytest.raises(TypeError, match="leads to sqlite"):
        publish(session, "t")


def test_inside_run_sync_a_session_is_a_blocking_one(shared: Database, table: Connection) -> None:
    def work(session: Session) -> tuple[int, int]:
        return publish(session, "t", 1), publish_many(session, [NewMessage(topic="t", payload=2)])

    async def main() -> tuple[int, int]:
        engine = create_async_engine(url(shared.dsn, "asyncpg"), poolclass=NullPool)
        async with AsyncSession(engine) as session, session.begin():
            return await session.run_sync(work)

    published, many = asyncio.run(main())

    assert (published > 0, many) == (True, 1)
    assert stored(table) == [("t", 1), ("t", 2)]


def test_publishing_with_psycopg_imports_no_other_driver(shared: Database) -> None:
    code = """
import psycopg, sys
from pgrouse import publish
with psycopg.connect(sys.argv[1]) as conn:
    publish(conn, "t")
    conn.rollback()
print(sorted({name.partition(".")[0] for name in sys.modules} & {"sqlalchemy", "django", "asyncpg"}))
"""

    done = subprocess.run([sys.executable, "-c", code, shared.dsn], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


# Other transactions


@pytest.fixture
def gate(table: Connection) -> Iterator[Connection]:
    """A connection that can let sessions wait before they insert a message with the key b, by the advisory lock 1."""
    table.execute(
        """
        CREATE FUNCTION public.wait_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN PERFORM pg_advisory_lock_shared(1), pg_advisory_unlock_shared(1); RETURN NEW; END$$;
        CREATE TRIGGER gate BEFORE INSERT ON messages.message FOR EACH ROW WHEN (NEW.key = 'b')
            EXECUTE FUNCTION public.wait_at_the_gate()
        """
    )
    yield table
    table.execute("DROP FUNCTION public.wait_at_the_gate() CASCADE; SELECT pg_advisory_unlock_all()")


@contextmanager
def taking_keys_in_another_order(
    gate: Connection, dsn: str, end: str, eventually: Callable[..., Any]
) -> Iterator[Future[None]]:
    """Hold key b of topic t, and wait for key a once another session has it.

    Then let that session wait for b, and end the transaction.

    So each waits for the other before the other session looks for a deadlock, however slow the machine is.
    """
    with psycopg.connect(dsn) as conn, ThreadPoolExecutor(2) as threads:
        # The other session is the one that PostgreSQL ends: only it looks for a deadlock.
        conn.execute("SET deadlock_timeout = '1h'")
        insert = "INSERT INTO messages.message (topic, key, payload) VALUES ('t', %s, '0')"
        conn.execute(insert, ["b"])
        gate.execute("SELECT pg_advisory_lock(1)")

        def waits_for(pid: int) -> int:
            return gate.execute(
                "SELECT FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid))", [pid]
            ).rowcount

        def go_on() -> None:
            eventually(lambda: waits_for(gate.info.backend_pid))
            taking = threads.submit(conn.execute, insert, ["a"])
            of_conn = "SELECT FROM pg_locks WHERE NOT granted AND pid = %s"
            eventually(lambda: gate.execute(of_conn, [conn.info.backend_pid]).rowcount)
            gate.execute("SELECT pg_advisory_unlock(1)")
            taking.result(60)
            conn.execute(end)

        yield threads.submit(go_on)


@pytest.mark.parametrize(("end", "returning"), [("COMMIT", False), ("ROLLBACK", True)])
def test_publish_many_goes_on_after_a_deadlock_and_the_transaction_too(
    distinct: Open, shared: Database, gate: Connection, eventually: Callable[..., Any], end: str, returning: bool
) -> None:
    many = [NewMessage(topic="t", key=key) for key in "ab"]
    with distinct() as it:
        it.execute("SET LOCAL deadlock_timeout = '10ms'")
        it.publish("before")
        with taking_keys_in_another_order(gate, shared.dsn, end, eventually) as other:
            outcome = result_or_error(it.publish_many, many, returning=returning)
            other.result(60)
        it.publish("after")

    taken = end == "COMMIT"
    assert isinstance(outcome, KeyTaken) if taken else not isinstance(outcome, Exception)
    assert sorted(stored(gate, "topic, coalesce(key, '')")) == [("after", ""), ("before", ""), ("t", "a"), ("t", "b")]


def test_a_generator_cannot_go_on_after_a_deadlock_and_the_error_says_what_to_do(
    shared: Database, gate: Connection, eventually: Callable[..., Any]
) -> None:
    many = (NewMessage(topic="t", key=key) for key in "ab")
    with CALLERS["psycopg"](shared.dsn) as it:
        it.execute("SET LOCAL deadlock_timeout = '10ms'")
        with taking_keys_in_another_order(gate, shared.dsn, "COMMIT", eventually) as other:
            outcome = result_or_error(it.publish_many, many)
            other.result(60)
        it.publish("after")

    assert isinstance(outcome, PublishConflict)
    assert "repeat the transaction" in str(outcome)
    assert len(stored(gate)) == 3


@pytest.mark.parametrize("on_conflict", ["ignore", "replace", "append"])
def test_a_key_that_was_committed_after_the_snapshot_is_a_conflict_that_names_the_fix(
    distinct: Open, table: Connection, on_conflict: str
) -> None:
    def publish_late() -> None:
        with distinct() as it:
            it.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            it.execute("SELECT 1 FROM messages.message LIMIT 1")
            table.execute("INSERT INTO messages.message (topic, key, payload) VALUES ('t', 'k', '0')")
            it.publish("t", 1, key="k", on_conflict=on_conflict)

    with pytest.raises(PublishConflict, match="repeat the transaction, or use READ COMMITTED"):
        publish_late()

    assert stored(table) == [("t", 0)]


def result_or_error(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    try:
        return function(*args, **options)
    except PgrouseError as error:
        return error
