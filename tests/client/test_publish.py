"""Publishing from Python, on both kinds of psycopg's connections."""

from __future__ import annotations

import asyncio
import inspect
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import RawCursor, errors, rows, sql
from pydantic import BaseModel

from pgrouse.crypto.cipher import Cipher
from pgrouse.errors import (
    InvalidMessage,
    InvalidPayload,
    KeyTaken,
    PayloadTooLarge,
    PgrouseError,
    PublishRateExceeded,
    PublishRejected,
    TopicClosed,
    TopicFull,
    TopicReserved,
)
from pgrouse.publishing import new_message
from pgrouse.publishing.copy_rows import DEFAULT_PRIORITY, KEYS
from pgrouse.publishing.new_message import ON_CONFLICT, NewMessage, PublishOptions, to_columns
from pgrouse.publishing.publish import publish, publish_many
from tests.server.deadline import eventually
from tests.server.postgres import Database

Connection = psycopg.Connection[Any]
LATER = datetime(2050, 1, 1, tzinfo=UTC)


def stored(db: Connection, columns: str = "topic, payload") -> list[tuple[Any, ...]]:
    """Return what other connections see, in the order of publishing."""
    return db.execute(f"SELECT {columns} FROM messages.message ORDER BY id").fetchall()


def on_async(database: Database, work: Callable[[psycopg.AsyncConnection[Any]], Any]) -> Any:
    """Run `await work(conn)` on an AsyncConnection."""

    async def main() -> Any:
        async with await psycopg.AsyncConnection.connect(database.dsn) as conn:
            return await work(conn)

    return asyncio.run(main())


class Order(BaseModel):
    """A typed payload."""

    id: int


# One message


def test_a_message_is_visible_after_the_callers_commit_and_not_before(conn: Connection, db: Connection) -> None:
    publish(conn, "orders.created", {"id": 7})
    before = stored(db)

    conn.commit()

    assert before == []
    assert stored(db) == [("orders.created", {"id": 7})]


def test_a_rollback_removes_the_message(conn: Connection, db: Connection) -> None:
    publish(conn, "orders.created", {"id": 7})

    conn.rollback()

    assert stored(db) == []


def test_delays_are_relative_to_the_servers_clock(conn: Connection, db: Connection) -> None:
    publish(conn, "t", delay="1h", ttl="1d")
    conn.commit()

    ((delay, life),) = stored(db, "available_at - created_at, expires_at - available_at")
    assert abs(delay - timedelta(hours=1)) < timedelta(minutes=1)
    assert abs(life - timedelta(days=1)) < timedelta(minutes=1)


@pytest.mark.parametrize("settings", [{"row_factory": rows.dict_row}, {"cursor_factory": RawCursor}])
def test_the_callers_row_and_cursor_factories_have_no_effect(database: Database, settings: dict[str, Any]) -> None:
    with psycopg.connect(database.dsn, **settings) as conn:
        assert publish(conn, "t", 1) > 0
        assert publish_many(conn, [NewMessage(topic="t")]) == 1


def test_a_pipeline_publishes_many_messages_and_returns_their_ids(conn: Connection, db: Connection) -> None:
    with conn.pipeline():
        ids = [publish(conn, "t", i) for i in range(5)]
    conn.commit()

    assert stored(db, "id, payload") == list(zip(ids, range(5), strict=True))


def test_a_refusal_on_an_async_connection_is_raised_at_the_call(database: Database) -> None:
    async def work(conn: psycopg.AsyncConnection[Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(InvalidMessage):
                publish(conn, "not a topic")

    on_async(database, work)


def test_publish_has_the_parameters_of_new_message() -> None:
    options = inspect.get_annotations(PublishOptions)

    assert sorted(["topic", "payload", *options]) == sorted(NewMessage.__slots__)


# Refused messages

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"topic": ""}, "topic '' is no topic name"),
    ({"topic": "a b"}, "topic 'a b' is no topic name"),
    ({"topic": "a\n"}, r"topic 'a\n' is no topic name"),
    ({"topic": "a'; DROP TABLE x"}, "is no topic name"),
    ({"topic": "a" * 201}, "is no topic name"),
    ({"topic": "été"}, "is no topic name"),
    ({"topic": ".a"}, "is no topic name"),
    ({"topic": 7}, "topic 7 is no topic name"),
    ({"payload": {"x": "\0"}}, "payload['x'] contains a NUL"),
    ({"payload": 1, "body": b"x"}, "payload and body were both given"),
    ({"body": "text"}, "body has the type str, not bytes"),
    ({"body": b"x" * (16 * 1024 * 1024 + 1)}, "body has 16,777,217 bytes"),
    ({"headers": [1]}, "headers has the type list"),
    ({"headers": {"a": "\0"}}, "headers['a'] contains a NUL"),
    ({"headers": {"a": "x" * 65536}}, "headers has 65,544 bytes, 65,536 is the limit"),
    ({"key": ""}, "key '' cannot be used"),
    ({"key": "a\tb"}, r"key 'a\tb' cannot be used"),
    ({"key": "k" * 201}, "1 to 200 printable characters"),
    ({"channel": 7}, "channel 7 cannot be used"),
    ({"channel": "\ud800"}, "cannot be used"),
    ({"priority": 10}, "priority 10 cannot be used: it must be an integer from 0 to 9"),
    ({"priority": -1}, "priority -1 cannot be used"),
    ({"priority": True}, "priority True cannot be used"),
    ({"max_attempts": 2**31}, "max_attempts 2147483648 cannot be used"),
    (
        {"delay": "soon"},
        "delay 'soon' cannot be used: it must be a timedelta, a number of seconds, or a text like \"5s\"",
    ),
    ({"delay": True}, "delay True cannot be used: it must be a timedelta, a number of seconds, or a text"),
    ({"ttl": float("nan")}, "ttl nan cannot be used: it must be a timedelta, a number of seconds, or a text"),
    ({"delay": timedelta(seconds=-1)}, "delay"),
    ({"delay": timedelta.max}, "from 0 to 36,500 days"),
    ({"ttl": timedelta(seconds=-1)}, "ttl"),
    ({"available_at": datetime(2050, 1, 1)}, "must be a datetime with a time zone"),  # noqa: DTZ001 - that is the point
    ({"available_at": datetime.max.replace(tzinfo=UTC)}, "must be between 1970 and 9000"),
    ({"available_at": LATER, "delay": timedelta(1)}, "delay and available_at were both given"),
    ({"available_at": datetime(9000, 1, 1, tzinfo=UTC), "ttl": timedelta(1)}, "would expire after the year 9000"),
    ({"key": "k", "on_conflict": "upsert"}, "on_conflict 'upsert' cannot be used: it must be one of error, replace"),
    ({"on_conflict": "replace"}, "on_conflict 'replace' needs a key"),
    ({"key": "k", "on_conflict": "append", "body": b"x"}, "a body cannot be appended"),
    ({"debounce": "1s"}, "debounce and throttle need a key"),
    ({"throttle": "1s"}, "debounce and throttle need a key"),
    ({"key": "k", "debounce": "soon"}, "debounce 'soon' cannot be used"),
    ({"key": "k", "debounce": timedelta.max}, "from 0 to 36,500 days"),
    ({"key": "k", "max_delay": "1s"}, "max_delay was given and debounce was not"),
    ({"key": "k", "throttle": "1s", "max_delay": "1s"}, "max_delay was given and debounce was not"),
    ({"key": "k", "debounce": "2s", "max_delay": "1s"}, "must not be shorter than debounce"),
    ({"key": "k", "debounce": "2s", "delay": "1s"}, "the delay is debounce"),
    ({"key": "k", "debounce": "2s", "available_at": LATER}, "the delay is debounce"),
    ({"key": "k", "debounce": "2s", "after": [1]}, "debounce and after were both given"),
    ({"key": "k", "debounce": "2s", "on_conflict": "ignore"}, "use 'replace' or 'append'"),
    ({"key": "k", "debounce": "2s", "throttle": "1s"}, "debounce and throttle were both given"),
    ({"key": "k", "throttle": "1s", "on_conflict": "replace"}, "use 'ignore'"),
]


def test_an_invalid_message_is_refused_and_the_transaction_continues(conn: Connection, db: Connection) -> None:
    said = [(expected, refusal(conn, values)) for values, expected in REFUSED]
    conn.commit()

    assert [(expected, text) for expected, text in said if expected not in text] == []
    assert stored(db, "topic") == [("after",)] * len(REFUSED)


def refusal(conn: Connection, values: dict[str, Any]) -> str:
    """Publish, and return what the refusal says, "accepted" if there is none.

    Then publish another message in the same transaction.
    """
    said = "accepted"
    try:
        publish(conn, **{"topic": "t", **values})
    except InvalidMessage as error:
        said = str(error)
    publish(conn, "after")
    return said


@pytest.mark.parametrize("option", [each.name for each in fields(NewMessage) if each.name != "payload"])
def test_an_option_is_checked_if_it_is_the_only_one(option: str) -> None:
    wrong: Any = "wrong" if option == "after" else object()
    if option == "expect_result":
        assert "expect_result" in to_columns(NewMessage(topic="t", expect_result=wrong))
        return
    with pytest.raises(InvalidMessage, match=option):
        to_columns(NewMessage(**{"topic": "t", option: wrong}))


def test_a_refusal_is_a_pgrouse_error_and_a_value_error() -> None:
    assert issubclass(InvalidMessage, PgrouseError)
    assert issubclass(InvalidMessage, ValueError)


@pytest.mark.parametrize(
    "values",
    [
        {"topic": "A-9._:x" + "y" * 193},
        {"key": "ü" * 200, "channel": "\u00a0 \\N"},
        {"payload": "x" * (16 * 1024 * 1024 - 100)},
        {"body": b"x" * 16 * 1024 * 1024},
        {"headers": {"a": "x" * 65000}},
        {"delay": timedelta(0), "ttl": timedelta(36_500), "max_attempts": 2**31 - 1},
        {"available_at": datetime(1970, 1, 1, tzinfo=UTC)},
        {"available_at": datetime(9000, 1, 1, tzinfo=UTC)},
    ],
    ids=["topic", "labels", "payload", "body", "headers", "waits", "earliest", "latest"],
)
def test_values_at_the_limits_are_accepted_by_client_and_database(conn: Connection, values: dict[str, Any]) -> None:
    message = NewMessage(**{"topic": "t", **values})

    assert publish_many(conn, [message]) == 1
    assert publish(conn, **{"topic": "t", **values, "key": None}) > 0


@pytest.mark.long
def test_a_payload_that_only_the_database_finds_too_large_is_refused_by_it(conn: Connection) -> None:
    # Small numbers take more space in jsonb than in text.
    with pytest.raises(errors.CheckViolation, match="message_payload_fits_16_mib"):
        publish(conn, "t", [1] * 3_000_000)


# Keys


def test_the_result_is_the_id_with_the_action(conn: Connection) -> None:
    first = publish(conn, "t", 1, key="k")
    others = [publish(conn, "t", 2, key="k", on_conflict=mode) for mode in ON_CONFLICT[1:]]
    conn.commit()

    assert first.outcome == "inserted"
    assert [other.outcome for other in others] == ["replaced", "ignored", "appended"]
    assert {int(other) for other in others} == {first}
    assert json.dumps({"id": first}) == f'{{"id": {int(first)}}}'


@pytest.mark.parametrize("mode", ["error", "replace", "append"])
def test_a_further_publish_with_debounce_starts_the_time_again(conn: Connection, db: Connection, mode: Any) -> None:
    first = publish(conn, "t", 1, key="k", debounce="1h", max_delay=timedelta(hours=5), on_conflict=mode)
    second = publish(conn, "t", 2, key="k", debounce="3h", max_delay=timedelta(hours=5), on_conflict=mode)
    conn.commit()

    appends = mode == "append"
    assert (second, second.outcome) == (first, "appended" if appends else "replaced")
    columns = "payload, round(extract(epoch FROM available_at - created_at) / 3600)::int"
    assert stored(db, columns) == [([1, 2] if appends else 2, 3)]


def test_a_key_that_is_throttled_is_ignored(conn: Connection, db: Connection) -> None:
    first = publish(conn, "t", 1, key="k", throttle=10)
    conn.commit()
    db.execute("SELECT FROM messages.claim('w', ARRAY['t'], 1)")

    second = publish(conn, "t", 2, key="k", throttle=timedelta(hours=1), delay="1h")
    conn.commit()

    assert (first.outcome, second.outcome, second) == ("inserted", "ignored", first)
    assert stored(db) == [("t", 1)]


def test_all_options_can_be_combined_with_on_conflict(conn: Connection, db: Connection) -> None:
    publish(
        conn, "t", Order(id=7), key="k", on_conflict="replace", headers={"a": 1}, channel="c", priority=0,
        max_attempts=3,
        delay=timedelta(hours=1), ttl=timedelta(days=1),
    )  # fmt: skip
    publish(conn, "b", body=b"\x00", key="k", on_conflict="ignore", available_at=LATER)
    conn.commit()

    columns = "payload, body, headers, channel, priority, max_attempts, expires_at - available_at"
    assert stored(db, columns) == [
        ({"id": 7}, None, {"a": 1}, "c", 0, 3, timedelta(days=1)),
        (None, b"\x00", None, None, 5, None, None),
    ]


def test_a_locked_message_with_the_same_key_is_reported(conn: Connection, db: Connection) -> None:
    db.execute("INSERT INTO messages.topic (topic, key_ttl) VALUES ('t', '1 hour')")
    first = publish(conn, "t", key="k")
    conn.commit()
    db.execute("SELECT messages.claim('w', '{t}', 1)")

    held = publish(conn, "t", key="k", on_conflict="ignore")
    with pytest.raises(KeyTaken, match=f"held by message {first} until it has ended"):
        publish(conn, "t", key="k")

    assert (held, held.outcome) == (first, "held")


# The policies of a topic


POLICIES: list[tuple[dict[str, Any], type[PublishRejected], str]] = [
    (
        {"max_depth": 1},
        TopicFull,
        "topic t is full: max_depth is 1, and with 1 more it would hold 2: publish again when",
    ),
    (
        {"publish_rate": 0.01},
        PublishRateExceeded,
        "publish_rate of topic t is 0.01 a second: this is too soon: try again in ",
    ),
    ({"max_payload_bytes": 1}, PayloadTooLarge, "a message of topic t has 3 bytes, max_payload_bytes is 1: store it"),
    ({"accept_publishes": False}, TopicClosed, "topic t does not accept publishes: set accept_publishes for it"),
]


@pytest.mark.parametrize(("policy", "kind", "expected"), POLICIES, ids=[kind.__name__ for _, kind, _ in POLICIES])
@pytest.mark.parametrize("many", [False, True])
def test_each_refusal_by_a_policy_has_its_own_error(
    conn: Connection, db: Connection, policy: dict[str, Any], kind: type[PublishRejected], expected: str, many: bool
) -> None:
    ((setting, value),) = policy.items()
    columns = sql.SQL("INSERT INTO messages.topic (topic, {}) VALUES ('t', {})").format(sql.Identifier(setting), value)
    db.execute(columns)

    def publish_twice() -> None:
        for _ in range(2):
            publish_many(conn, [NewMessage(topic="t", payload="x")]) if many else publish(conn, "t", "x")

    with pytest.raises(kind) as caught:
        publish_twice()

    assert expected in str(caught.value)
    assert isinstance(caught.value.__cause__, psycopg.Error)
    assert caught.value.__cause__.sqlstate == kind.sqlstate


def test_a_reserved_name_has_its_own_error(conn: Connection) -> None:
    with pytest.raises(TopicReserved, match=r"names that end with \.dlq are those of dead letters"):
        publish(conn, "orders.dlq")


def test_a_message_dropped_by_a_full_topic_has_no_id(conn: Connection, db: Connection) -> None:
    db.execute("INSERT INTO messages.topic (topic, max_depth, on_full) VALUES ('t', 1, 'drop')")

    published = [publish(conn, "t"), publish(conn, "t"), publish(conn, "t", key="k", on_conflict="replace")]
    many = publish_many(conn, [NewMessage(topic=topic) for topic in ("t", "other", "t")])
    conn.commit()

    assert [p.outcome for p in published] == ["inserted", "dropped", "dropped"]
    assert [bool(p) for p in published] == [True, False, False]
    assert (many, many.dropped) == (1, 2)
    assert stored(db, "topic") == [("t",), ("other",)]


def test_the_ttl_counts_from_when_it_is_available(conn: Connection, db: Connection) -> None:
    ttl = timedelta(hours=1)
    past = datetime.now(UTC) - timedelta(days=1)
    for at in (LATER, past):
        publish(conn, "t", available_at=at, ttl=ttl)
        publish_many(conn, [NewMessage(topic="t", available_at=at, ttl=ttl)])
    conn.commit()

    lives = stored(db, "expires_at - greatest(available_at, created_at)")
    assert all(abs(life - ttl) < timedelta(minutes=1) for (life,) in lives)


# Schemas

SCHEMA = '{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
LOOSER = '{"type": "object"}'


@pytest.fixture
def schema(db: Connection) -> Callable[[str | None], None]:
    """`schema(text)` sets the payload_schema of topic t."""

    def set_schema(text: str | None) -> None:
        db.execute(
            "INSERT INTO messages.topic (topic, payload_schema) VALUES ('t', %(s)s) "
            "ON CONFLICT (topic) DO UPDATE SET payload_schema = %(s)s",
            {"s": text},
        )

    return set_schema


@pytest.mark.parametrize("options", [{}, {"key": "k", "on_conflict": "replace"}])
def test_a_payload_that_does_not_match_the_schema_is_refused_and_the_transaction_continues(
    conn: Connection, db: Connection, schema: Callable[[str | None], None], options: dict[str, Any]
) -> None:
    schema(SCHEMA)

    for _ in range(2):  # the first time it is not cached yet
        with pytest.raises(InvalidPayload, match="does not fit the payload_schema of topic t: id: ") as caught:
            publish(conn, "t", {"id": "s3cret"}, **options)
    published = publish(conn, "t", {"id": 7}, **options)
    conn.commit()

    assert len(caught.value.problems) == 1
    assert "s3cret" not in str(caught.value)
    assert stored(db, "id, payload") == [(published, {"id": 7})]


@pytest.mark.parametrize("option", ["debounce", "throttle"])
def test_a_payload_is_checked_too_while_a_message_of_its_key_waits(
    conn: Connection, schema: Callable[[str | None], None], option: str
) -> None:
    schema(SCHEMA)
    wait: Any = {option: "1h"}
    publish(conn, "t", {"id": 7}, key="k", **wait)

    with pytest.raises(InvalidPayload):
        publish(conn, "t", {"id": "x"}, key="k", **wait)


def test_a_changed_schema_applies_to_the_next_publish(
    conn: Connection, db: Connection, schema: Callable[[str | None], None]
) -> None:
    publish(conn, "t", [])
    schema(SCHEMA)
    with pytest.raises(InvalidPayload):
        publish(conn, "t", {})
    conn.commit()
    schema(LOOSER)
    publish(conn, "t", {})
    conn.commit()
    schema(None)
    publish(conn, "t", [1])
    conn.commit()

    assert stored(db, "payload") == [([],), ({},), ([1],)]


def test_a_statement_that_was_prepared_notices_a_new_schema_and_a_lost_right(
    conn: Connection, db: Connection, schema: Callable[[str | None], None]
) -> None:
    assert conn.prepare_threshold is not None
    for number in range(conn.prepare_threshold + 2):
        publish(conn, "t", [number])
    conn.commit()
    is_prepared = conn.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%messages.message %'")
    assert is_prepared.fetchone() == (1,)

    schema(SCHEMA)
    with pytest.raises(InvalidPayload):
        publish(conn, "t", [])
    conn.execute("SET search_path = messages, pg_temp")
    schema(None)
    publish(conn, "t", ["no schema"])
    conn.commit()
    conn.execute("SET ROLE pg_monitor")
    with pytest.raises(errors.InsufficientPrivilege):
        publish(conn, "t", [])

    assert stored(db, "payload")[-1] == (["no schema"],)


def test_a_publish_with_a_cached_schema_is_one_round_trip(
    conn: Connection, schema: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema(SCHEMA)
    publish(conn, "t", {"id": 1})
    sent = []
    execute = psycopg.Cursor.execute
    monkeypatch.setattr(
        psycopg.Cursor, "execute", lambda *args, **named: [sent.append(args[1]), execute(*args, **named)][1]
    )

    publish(conn, "t", {"id": 2})
    publish(conn, "other", {"id": 2})

    assert len(sent) == 2


def test_a_body_does_not_match_a_schema(conn: Connection, schema: Callable[[str | None], None]) -> None:
    schema(LOOSER)

    with pytest.raises(InvalidPayload, match="it has a body instead of a payload"):
        publish(conn, "t", body=b"x")


def test_the_schema_of_the_defaults_applies_to_topics_without_their_own(conn: Connection, db: Connection) -> None:
    db.execute("UPDATE messages.topic SET payload_schema = %s WHERE topic = '*'", [SCHEMA])

    with pytest.raises(InvalidPayload):
        publish(conn, "whatever", 1)
    with pytest.raises(InvalidPayload):
        publish_many(conn, [NewMessage(topic="whatever", payload=1)])
    assert publish(conn, "whatever", {"id": 1}) > 0


def test_the_first_invalid_payload_of_many_is_named_and_none_is_published(
    conn: Connection, db: Connection, schema: Callable[[str | None], None]
) -> None:
    schema(SCHEMA)
    good, bad = NewMessage(topic="t", payload={"id": 1}), NewMessage(topic="t", payload={"id": None})

    with pytest.raises(InvalidPayload, match=r"topic t \(message number 3\): id: "):
        publish_many(conn, [good, NewMessage(topic="other"), bad])
    publish_many(conn, [good])
    conn.commit()

    assert stored(db) == [("t", {"id": 1})]


# Many messages


def test_many_messages_are_streamed_in_order(conn: Connection, db: Connection) -> None:
    count = publish_many(conn, (NewMessage(topic="t", payload=i) for i in range(20_000)))
    before = stored(db)
    conn.commit()

    assert (count, before) == (20_000, [])
    assert [payload for (payload,) in stored(db, "payload")] == list(range(20_000))


def test_messages_with_options_can_be_mixed_with_others(conn: Connection, db: Connection) -> None:
    text = "\\ \\N \n \t ü"
    messages = [
        NewMessage(topic="a", payload=text),
        NewMessage(topic="b"),
        NewMessage(topic="c", payload=text, key="k"),
        NewMessage(topic="d", payload=text),
        NewMessage(topic="e", payload=text, ttl=timedelta(days=1), key="k"),
        NewMessage(topic="f", payload=text),
    ]

    count = publish_many(conn, messages)
    with pytest.raises(KeyTaken, match="topic c with the key 'k' waits"):
        publish_many(conn, messages)
    conn.commit()

    assert count == len(messages)
    assert stored(db, "topic, payload, key, priority, expires_at IS NOT NULL") == [
        ("a", text, None, 5, False),
        ("b", None, None, 5, False),
        ("c", text, "k", 5, False),
        ("d", text, None, 5, False),
        ("e", text, "k", 5, True),
        ("f", text, None, 5, False),
    ]


def test_no_message_is_available_before_its_transaction_began(conn: Connection, db: Connection) -> None:
    conn.execute("SELECT txid_current()")
    began = db.execute("SELECT clock_timestamp()").fetchone()
    publish_many(conn, [NewMessage(topic="t", ttl=timedelta(1)), NewMessage(topic="t")])
    conn.commit()

    assert began is not None
    assert all(available_at >= began[0] for (available_at,) in stored(db, "available_at"))


def test_a_key_of_a_class_of_strings_is_stored_as_it_is(conn: Connection, db: Connection) -> None:
    class Key(str):
        __slots__ = ()

    publish_many(conn, [NewMessage(topic="t", payload=1, key=Key("a\\b"))])
    conn.commit()

    assert stored(db, "key") == [("a\\b",)]


def test_messages_may_be_read_from_the_same_connection_and_are_published_all_or_none(
    database: Database, db: Connection
) -> None:
    def read(keys: list[str | None]) -> Iterator[NewMessage]:
        for key in keys:
            found = conn.execute("SELECT repeat('x', 400000)").fetchone()
            yield NewMessage(topic="t", payload=found and found[0], key=key)

    with psycopg.connect(database.dsn, autocommit=True) as conn:
        conn.execute("SET ROLE messages_publisher")  # who may not read keys, and gets the line of one COPY only
        with pytest.raises(KeyTaken, match="topic t with the key 'sixth' waits"):
            publish_many(conn, read(["first", None, "third", "fourth", None, "sixth", "sixth"]))
        after_failure = stored(db)
        count = publish_many(conn, read(["first", None, "third", "fourth", None, "sixth", "seventh"]))

    assert (count, after_failure) == (7, [])
    assert stored(db, "key")[2:] == [("third",), ("fourth",), (None,), ("sixth",), ("seventh",)]


@pytest.fixture
def last_waits_for_the_copy(db: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encode the payload "last" only after the server has stored a message of a COPY that is under way."""
    encode = new_message.jsonb.encode

    def encode_last_during_copy(value: Any, *args: Any) -> str:
        if value == "last":
            copied = "SELECT tuples_processed FROM pg_stat_progress_copy WHERE tuples_processed > 0"
            eventually(lambda: db.execute(copied).fetchone())
        return encode(value, *args)

    monkeypatch.setattr(new_message.jsonb, "encode", encode_last_during_copy)


def last_of(count: int, payload: Any) -> list[NewMessage]:
    """Return messages, after which one with the payload "last" comes."""
    return [NewMessage(topic="t", payload=each) for each in [*[payload] * count, "last"]]


@pytest.mark.usefixtures("last_waits_for_the_copy")
@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize(("count", "payload"), [(1000, "x" * 1000), (200, 1)], ids=["large", "few and small"])
def test_a_list_is_encoded_while_the_server_copies(conn: Connection, kind: type, count: int, payload: Any) -> None:
    assert publish_many(conn, kind(last_of(count, payload))) == count + 1


@pytest.mark.usefixtures("last_waits_for_the_copy")
def test_a_list_is_encoded_while_the_server_copies_on_an_async_connection(database: Database) -> None:
    assert on_async(database, lambda conn: publish_many(conn, last_of(200, 1))) == 201


def test_a_taken_key_of_a_long_list_is_named(conn: Connection) -> None:
    conn.execute("SET ROLE messages_publisher")
    publish(conn, "t", key="k1")
    messages = [NewMessage(topic="t", key=f"k{i}") for i in range(KEYS + 10)]

    with pytest.raises(KeyTaken, match="topic t with the key 'k1' waits"):
        publish_many(conn, messages)

    assert publish_many(conn, messages[2:]) == KEYS + 8


@pytest.mark.parametrize("before", [1, 5000])
def test_a_refused_message_rolls_back_all_and_the_transaction_continues(
    conn: Connection, db: Connection, before: int
) -> None:
    messages = [NewMessage(topic="t", payload=i) for i in range(before)] + [NewMessage(topic="not a topic")]

    with pytest.raises(InvalidMessage, match=f"message number {before + 1}: topic 'not a topic' is no topic name"):
        publish_many(conn, messages)
    publish(conn, "after")
    conn.commit()

    assert stored(db, "topic") == [("after",)]


def test_an_error_of_the_callers_iterator_is_raised_unchanged(conn: Connection, db: Connection) -> None:
    def broken() -> Iterable[NewMessage]:
        yield NewMessage(topic="t")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        publish_many(conn, broken())
    conn.commit()

    assert stored(db) == []


def a_bit_of_all() -> list[NewMessage]:
    """Rows that COPY takes, then one with a time, then messages that may meet others, then one more row."""
    return [
        NewMessage(topic="t", payload=0),
        NewMessage(topic="t", payload=1, delay="1h"),
        NewMessage(topic="t", payload=2, key="z", on_conflict="ignore"),
        NewMessage(topic="t", payload=3, key="z", on_conflict="ignore"),
        NewMessage(topic="t", payload=4, key="b", on_conflict="replace", delay="1h", headers={"h": 1}),
        NewMessage(topic="t", payload=5, key="b", on_conflict="append"),
        NewMessage(topic="t", body=b"\x00", priority=2, ttl="1h", max_attempts=3),
        NewMessage(topic="t", payload=7, key="d", debounce="1h", max_delay="2h"),
        NewMessage(topic="t", payload=8, key="y", throttle="1h"),
        NewMessage(topic="t", payload=9, key="y", throttle="1h"),
    ]


def test_each_of_many_tells_what_became_of_it_and_which_message_stands(conn: Connection, db: Connection) -> None:
    held = publish(conn, "t", "held", key="z")

    results = publish_many(conn, a_bit_of_all(), returning=True)
    conn.commit()

    outcomes = [each.outcome for each in results]
    assert outcomes[:4] == ["inserted", "inserted", "ignored", "ignored"]
    assert outcomes[4:] == ["inserted", "appended", "inserted", "inserted", "inserted", "ignored"]
    assert (results[2], results[3], results[5], results[9]) == (held, held, results[4], results[8])
    found = dict(
        db.execute("SELECT id, (payload, key, priority, body, max_attempts)::text FROM messages.message").fetchall()
    )
    assert set(found) == {held, *results}
    assert found[results[4]] == '("[4, 5]",b,5,,)'
    assert found[results[6]] == '(,,2,"\\\\x00",3)'


@pytest.mark.parametrize("as_list", [True, False])
def test_many_are_counted_by_what_became_of_them(conn: Connection, db: Connection, as_list: bool) -> None:
    messages = a_bit_of_all()

    many = publish_many(conn, messages if as_list else iter(messages))
    conn.commit()

    assert (many, many.ignored, many.dropped) == (8, 2, 0)
    assert len(stored(db)) == 7


def test_many_are_published_with_their_times_and_predecessors(conn: Connection, db: Connection) -> None:
    first = publish(conn, "t")
    after = NewMessage(topic="t", payload="after", after=[first], delay="1h")
    until = NewMessage(topic="t", payload="until", key="k", on_conflict="ignore", available_at=LATER)

    publish_many(conn, [after, until])
    conn.commit()

    assert db.execute("SELECT predecessor_id FROM messages.dependency").fetchall() == [(first,)]
    assert (LATER, "until") in stored(db, "available_at, payload")


def test_callers_with_the_same_keys_in_opposite_orders_do_not_deadlock(conn: Connection, database: Database) -> None:
    # Not a list, which would be published again after a deadlock.
    def published(numbers: Iterable[int]) -> None:
        with psycopg.connect(database.dsn) as other:
            publish_many(other, (NewMessage(topic="t", key=f"k{n:03}", on_conflict="replace") for n in numbers))

    with ThreadPoolExecutor(4) as pool:
        orders = [range(400), reversed(range(400)), range(400), reversed(range(400))]
        for each in [pool.submit(published, order) for order in orders * 5]:
            each.result()


def test_nothing_is_appended_to_an_encrypted_message_of_many(conn: Connection) -> None:
    cipher = Cipher({"k": bytes(32)}, "k")

    with pytest.raises(InvalidMessage, match="topic t is encrypted: nothing can be appended"):
        publish_many(conn, [NewMessage(topic="t", key="k", on_conflict="append")], cipher=cipher)


def test_the_default_priority_is_that_of_the_table(db: Connection) -> None:
    row: Any = db.execute(
        """
        SELECT column_default FROM information_schema.columns
        WHERE table_schema = 'messages' AND table_name = 'message' AND column_name = 'priority'
        """
    ).fetchone()

    assert row[0] == str(DEFAULT_PRIORITY)


def test_a_publish_notifies_listeners_of_a_topic_that_always_notifies(conn: Connection, db: Connection) -> None:
    db.execute("INSERT INTO messages.topic (topic, notify) VALUES ('t', 'always')")
    db.execute("LISTEN new_message")
    conn.commit()

    message_id = publish(conn, "t")
    conn.commit()
    publish_many(conn, [NewMessage(topic="t"), NewMessage(topic="t")])
    conn.commit()

    heard = [notice.payload for notice in db.notifies(timeout=60, stop_after=2)]
    assert heard == [str(message_id), "t"]


# Its own timeout, backoff and retention.

OWN: dict[str, Any] = {
    "timeout": "90s",
    "backoff": {"kind": "constant", "base": timedelta(seconds=7)},
    "retention": "90d",
}
OWN_COLUMNS = "timeout, backoff, retention"
OWN_ROW = (timedelta(seconds=90), {"kind": "constant", "base": "7s"}, timedelta(days=90))


def test_a_message_has_its_own_timeout_backoff_and_retention(conn: Connection, db: Connection) -> None:
    publish(conn, "t", 1, **OWN)
    publish(conn, "t", 2, key="k", on_conflict="replace", **OWN)
    publish(conn, "t", 3, timeout=1.5, backoff="none", retention=timedelta(hours=1))
    conn.commit()

    assert stored(db, OWN_COLUMNS) == [
        OWN_ROW,
        OWN_ROW,
        (timedelta(seconds=1.5), {"kind": "none"}, timedelta(hours=1)),
    ]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"timeout": 0}, "timeout: must be between 1ms and 30d, found 0s"),
        ({"timeout": "31d"}, "timeout: must be between 1ms and 30d, found 31d"),
        ({"timeout": "soon"}, "timeout: expected a duration"),
        ({"timeout": "inherit"}, "timeout: a message without its own has that of its topic"),
        ({"retention": timedelta(minutes=1)}, "retention: must be between 1h and 36500d, found 1m"),
        ({"retention": "none"}, "retention: a message without its own"),
        ({"backoff": "cubic"}, "backoff: "),
        ({"backoff": {}}, "backoff.kind is missing: use none, constant, linear or exponential"),
        ({"backoff": {"kind": "cubic"}}, "backoff.kind: "),
        ({"backoff": {"kind": "constant", "base": -1}}, "backoff.base: expected a duration"),
        ({"backoff": {"kind": "constant", "bas": 1}}, "backoff"),
        ({"backoff": 7}, "backoff: "),
    ],
)
def test_an_own_setting_that_cannot_be_is_refused(conn: Connection, option: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        publish(conn, "t", **option)

    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    "option",
    [
        {"timeout": 0.001},
        {"timeout": "30d"},
        {"retention": "1h"},
        {"retention": "36500d"},
        {"backoff": {"kind": "exponential", "base": 0, "factor": 1000, "cap": "3650d", "jitter": 1, "max_total": 0}},
        {"backoff": {"kind": "linear", "base": "1ms", "step": "1h30m", "jitter": "full"}},
    ],
)
def test_own_settings_at_the_limits_are_accepted_by_client_and_database(
    conn: Connection, option: dict[str, Any]
) -> None:
    assert publish(conn, "t", **option)
    assert publish_many(conn, [NewMessage(topic="t", **option)]) == 1
