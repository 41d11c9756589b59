"""messages.publish and INSERT: what a publisher may set, and what is refused."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from tests.server.postgres import Database
from tests.sql.queue import Queue

# publish: A plain INSERT into messages.message is a publish, and messages.publish another: what they accept, what they
# refuse, and what hostile

INSERT = "INSERT INTO messages.message (topic, payload) VALUES (%s, %s) RETURNING id"


@pytest.fixture
def publisher(database: Database) -> psycopg.Connection[Any]:
    """A connection with the rights of messages_publisher and no more."""
    conn = database.connect()
    conn.execute("SET ROLE messages_publisher")
    return conn


def refused(queue: Queue, **columns: Any) -> str | None:
    """Return the name of the constraint that refuses such a message."""
    with pytest.raises(psycopg.IntegrityError) as caught:
        queue.publish(**columns)
    return caught.value.diag.constraint_name


def test_an_insert_of_topic_and_payload_is_a_full_publish(publisher: psycopg.Connection[Any], queue: Queue) -> None:
    row = publisher.execute(INSERT, ["orders.created", '{"id": 7}']).fetchone()

    (claimed,) = queue.claim("orders.created")
    assert row == (claimed.id,)
    assert (claimed.topic, claimed.payload, claimed.priority, claimed.attempt) == ("orders.created", '{"id": 7}', 5, 1)


def test_a_publisher_may_set_everything_that_describes_a_message(
    publisher: psycopg.Connection[Any], queue: Queue
) -> None:
    publisher.execute(
        """
        INSERT INTO messages.message (
          topic, channel, key, priority, body, headers, available_at, expires_at, max_attempts)
        VALUES ('t', 'tenant 1', 'k', 0, '\\x00ff', '{"trace": "a"}',
        now() - interval '1 s', now() + interval '1 day', 3)
        """
    )

    (claimed,) = queue.claim()
    assert (claimed.channel, claimed.key, claimed.priority, claimed.max_attempts) == ("tenant 1", "k", 0, 3)
    assert (claimed.body, claimed.payload, claimed.headers) == (b"\x00\xff", None, '{"trace": "a"}')


def test_a_publish_that_is_rolled_back_leaves_nothing(queue: Queue) -> None:
    with queue.conn.transaction(force_rollback=True):
        queue.publish()

    assert queue.claim() == []


@pytest.mark.parametrize("topic", ["a", "A-1", "orders.created", "a:b_c.d-e", "7", "x" * 200])
def test_a_topic_may_be_any_plain_name_of_up_to_200_characters(queue: Queue, topic: str) -> None:
    published = queue.publish(topic)

    assert queue.claim(topic)[0].id == published


TOPICS = [
    "",
    " ",
    "a b",
    "a\n",
    "\na",
    "a\nb",
    "a'b",
    'a"b',
    "a;b",
    "a\tb",
    ".a",
    "-a",
    "*",
    "é",
    "a/b",
    "x" * 201,
    "a\u202eb",
]
TIMES = ["infinity", "-infinity", "10000-01-01", "1969-12-31", "0044-03-15 BC"]
# The constraint that refuses each of these messages.
REFUSED = {
    "message_topic_is_a_name": [{"topic": topic} for topic in TOPICS],
    "message_channel_is_short_and_printable": [{"channel": channel} for channel in ("", "a\nb", "\x7f", "x" * 201)],
    "message_key_is_short_and_printable": [{"key": key} for key in ("", "a\nb", "x" * 201)],
    "message_priority_is_0_to_9": [{"priority": -1}, {"priority": 10}],
    "message_has_payload_or_body": [{"payload": None, "body": None}, {"payload": {}, "body": b""}],
    "message_times_are_finite": [
        {column: time} for column in ("available_at", "created_at", "expires_at") for time in TIMES
    ],
    "message_headers_are_an_object": [{"headers": each} for each in ("[]", '"x"', "1", "null", {"h": "x" * 66000})],
    "message_attempts_are_counted": [{"max_attempts": -1}],
    "message_lock_is_whole": [
        {"claim_id": 1},
        {"locked_by": "w"},
        {"claim_id": 1, "locked_by": "w", "locked_at": "now"},
        {"locked_at": "now", "lock_expires_at": "now"},
    ],
}


@pytest.mark.parametrize("constraint", REFUSED)
def test_a_message_that_breaks_a_rule_is_refused_and_the_rule_is_named(queue: Queue, constraint: str) -> None:
    for columns in REFUSED[constraint]:
        assert (columns, refused(queue, **columns)) == (columns, constraint)


def test_channel_and_key_may_hold_any_printable_text(queue: Queue) -> None:
    queue.publish(channel="Ünïted 'Kingdom' 🦆", key='"; DROP TABLE message; --')

    (claimed,) = queue.claim()
    assert (claimed.channel, claimed.key) == ("Ünïted 'Kingdom' 🦆", '"; DROP TABLE message; --')


def test_a_json_null_is_a_payload(queue: Queue) -> None:
    queue.publish(payload=sql.SQL("'null'::jsonb"))

    assert queue.claim_one().payload == "null"


def test_a_message_without_a_time_is_refused(queue: Queue) -> None:
    with pytest.raises(errors.NotNullViolation, match="available_at"):
        queue.publish(available_at=None)


def test_16_megabytes_are_accepted_and_returned_unchanged(queue: Queue) -> None:
    queue.publish(body=sql.SQL("convert_to(repeat('x', 16777216), 'UTF8')"))

    assert len(queue.claim_one().body) == 16 * 1024 * 1024


@pytest.mark.parametrize("payload", ['"\\u0000"', '{"a": "b\\u0000c"}', '{"\\u0000": 1}'])
def test_a_nul_character_is_refused_by_name(queue: Queue, payload: str) -> None:
    with pytest.raises(errors.UntranslatableCharacter, match=r"\\u0000"):
        queue.conn.execute(INSERT, ["t", payload])


@pytest.mark.parametrize("payload", ["", "{", "{'a': 1}", "NaN", "Infinity", '"\\ud800"', "[1,]", "nul"])
def test_invalid_json_is_refused(queue: Queue, payload: str) -> None:
    with pytest.raises(psycopg.DataError):
        queue.conn.execute(INSERT, ["t", payload])


def test_of_duplicate_keys_the_last_wins(queue: Queue) -> None:
    queue.conn.execute(INSERT, ["t", '{"a": 1, "b": 2, "a": 3}'])

    assert json.loads(queue.claim_one().payload) == {"a": 3, "b": 2}


HOSTILE = {
    "an integer of 4,301 digits": "9" * 4301,
    "1e400": "1e400",
    "nesting of 1,000": "[" * 1000 + "]" * 1000,
    "objects nested 1,000 deep": '{"a":' * 1000 + "1" + "}" * 1000,
    "a tiny number": "1e-400",
    "an emoji beyond the basic plane": '"\\ud83e\\udd86"',
    "a key that is empty": '{"": {"__proto__": null}}',
}


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE.keys())
def test_legal_but_hostile_json_is_accepted(queue: Queue, payload: str) -> None:
    queue.conn.execute(INSERT, ["t", payload])

    assert isinstance(queue.claim_one().payload, str)


def test_one_bad_row_refuses_its_whole_statement_and_no_other(queue: Queue) -> None:
    good = queue.publish()

    with pytest.raises(errors.CheckViolation):
        queue.conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('t', '1'), ('bad topic', '2')")

    assert queue.ids() == [good]


def test_a_key_may_be_ready_once_per_topic(queue: Queue) -> None:
    queue.publish("a", key="k")
    queue.publish("b", key="k")

    assert refused(queue, topic="a", key="k") == "message_key"


def test_a_key_is_free_again_as_soon_as_its_message_is_claimed(queue: Queue) -> None:
    queue.publish(key="k")
    queue.claim()

    newer = queue.publish(key="k")

    assert queue.claim_one().id == newer


def test_a_copy_publishes_in_bulk(publisher: psycopg.Connection[Any], queue: Queue) -> None:
    with publisher.cursor().copy("COPY messages.message (topic, payload) FROM STDIN") as copy:
        for n in range(1000):
            copy.write_row(["t", json.dumps(n)])

    assert sorted(int(c.payload) for c in queue.claim(limit=2000)) == list(range(1000))


# messages.publish


def test_the_function_publishes_as_an_insert_does(publisher: psycopg.Connection[Any], queue: Queue) -> None:
    sent = Queue(publisher).send({"id": 7}, "orders.created")

    claimed = queue.claim_one("orders.created")
    assert (sent.id, sent.outcome) == (claimed.id, "inserted")
    assert (claimed.payload, claimed.priority, claimed.key, claimed.channel) == ('{"id": 7}', 5, None, None)


def test_the_function_accepts_everything_that_describes_a_message(
    publisher: psycopg.Connection[Any], queue: Queue
) -> None:
    sent = Queue(publisher).row(
        """
        SELECT * FROM messages.publish('t', p_body => '\\x00ff', p_key => 'k',
        p_headers => '{"trace": "a"}', p_channel => 'tenant 1',
                                       p_priority => 0, p_delay => '1 hour', p_ttl => '1 day', p_max_attempts => 3)
        """
    )

    row = queue.row(
        "SELECT *, round(extract(epoch "
        "FROM available_at - created_at)) AS delay, expires_at - available_at AS life FROM messages.message"
    )
    assert (row.id, row.key, row.channel, row.priority, row.max_attempts) == (sent.id, "k", "tenant 1", 0, 3)
    assert (row.body, row.payload, row.headers) == (b"\x00\xff", None, {"trace": "a"})
    assert (row.delay, row.life) == (3600, timedelta(days=1))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("NULL, '1'", "topic is missing"),
        ("'t'", "a message has a payload or a body: give one of them"),
        ("'t', '1', p_body => 'x'", "a message has a payload or a body: give one of them"),
        ("'t', '1', 'k', 'upsert'", 'on_conflict is "upsert": use error, replace, ignore or append'),
        ("'t', '1', 'k', NULL", "on_conflict is NULL: use error, replace, ignore or append"),
        ("'t', '1', p_on_conflict => 'replace'", "on_conflict is replace and there is no key: give one"),
        ("'t', p_body => 'x', p_key => 'k', p_on_conflict => 'append'", "only payloads can be gathered"),
        ("'t', '1', p_delay => '1 s', p_available_at => now()", "delay and available_at were both given"),
        ("'t', '1', p_delay => '-1 s'", "delay is -00:00:01: use an interval from 0 to 36500 days"),
        ("'t', '1', p_ttl => '-1 s'", "ttl is -00:00:01: use an interval from 0 to 36500 days"),
    ],
)
def test_an_invalid_argument_is_named_with_its_value_and_the_fix(queue: Queue, arguments: str, error: str) -> None:
    with pytest.raises(errors.InvalidParameterValue) as caught:
        queue.row(f"SELECT * FROM messages.publish({arguments})")

    assert error in str(caught.value)


def test_the_row_of_the_function_is_checked_like_that_of_an_insert(queue: Queue) -> None:
    with pytest.raises(errors.CheckViolation, match="message_topic_is_a_name"):
        queue.send(topic="not a topic")
    with pytest.raises(errors.CheckViolation, match="message_priority_is_0_to_9"):
        queue.send(priority=10)


# messages.add_dependencies: the rows of a message that waits for others. The effects: test_chains.py.


def test_the_options_of_its_publisher_and_its_dependencies_are_stored(queue: Queue) -> None:
    first, second = queue.publish_many(2)

    last = queue.send(after=[second, first], after_failed="run", delay="1 hour", ttl="2 hours").id

    blocked = queue.row("SELECT * FROM messages.blocked_message")
    assert (blocked.id, blocked.after_failed, blocked.width) == (last, "run", 2)
    assert (str(blocked.delay), str(blocked.ttl)) == ("1:00:00", "2:00:00")
    edges = queue.rows("SELECT successor_id, predecessor_id, failed_result FROM messages.dependency ORDER BY 2")
    assert [tuple(edge) for edge in edges] == [(last, first, None), (last, second, None)]


def test_a_message_without_predecessors_is_not_blocked(queue: Queue) -> None:
    queue.send(after=[])
    queue.send()

    assert queue.value("SELECT count(*) FROM messages.blocked_message") == 0
    assert len(queue.claim()) == 2


# messages.payload_schema_digest: identifies the payload schema of a topic.


def test_without_a_schema_there_is_none(queue: Queue) -> None:
    queue.policy("t", max_attempts=3)

    assert [queue.call("payload_schema_digest", topic) for topic in ("t", "unknown")] == [None, None]


def test_it_changes_only_with_the_schema(queue: Queue) -> None:
    queue.policy("t", payload_schema={"type": "object", "required": ["id"]})
    first = queue.call("payload_schema_digest", "t")
    queue.policy("t", max_attempts=3, payload_schema={"required": ["id"], "type": "object"})
    same = queue.call("payload_schema_digest", "t")
    queue.policy("t", payload_schema={"type": "array"})

    assert first == same
    assert queue.call("payload_schema_digest", "t") not in {first, None}


def test_the_topics_own_schema_wins_over_the_default(queue: Queue) -> None:
    queue.policy("*", payload_schema={"type": "object"})
    queue.policy("t", payload_schema={"type": "array"})

    assert queue.call("payload_schema_digest", "other") not in {queue.call("payload_schema_digest", "t"), None}
