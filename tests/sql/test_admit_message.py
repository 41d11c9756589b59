"""The trigger admit_message: TTL, size, topics that accept no publishes, reserved names. Limits that are counted: test_add_depth.py, test_charge_publish_rate.py."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import sql

from tests.server.postgres import Database
from tests.sql.queue import Queue

LATER = datetime(2050, 1, 1, tzinfo=UTC)


@pytest.fixture
def publisher(database: Database) -> Iterator[Queue]:
    """A connection with the rights of messages_publisher and no more."""
    conn = database.connect()
    conn.execute("SET ROLE messages_publisher")
    yield Queue(conn)
    conn.execute("RESET ROLE")


def refused(queue: Queue, topic: str = "t", **columns: object) -> psycopg.errors.Diagnostic:
    with pytest.raises(psycopg.Error) as caught:
        queue.publish(topic, **columns)
    return caught.value.diag


# TTL


def test_a_message_without_its_own_expires_at_expires_after_the_ttl_of_the_topic(
    queue: Queue, publisher: Queue
) -> None:
    queue.policy("t", ttl="1 hour")

    row = queue.message(publisher.publish())

    assert abs(row.expires_at - row.created_at - timedelta(hours=1)) < timedelta(minutes=1)


def test_the_publishers_expires_at_wins_over_the_ttl(queue: Queue) -> None:
    queue.policy("t", ttl="1 hour")

    assert queue.message(queue.publish(expires_at=LATER)).expires_at == LATER


def test_the_ttl_of_a_delayed_message_counts_from_when_it_is_available(queue: Queue) -> None:
    queue.policy("t", ttl="1 hour")

    assert queue.message(queue.publish(available_at=LATER)).expires_at == LATER + timedelta(hours=1)


def test_messages_of_topics_without_a_ttl_never_expire(queue: Queue) -> None:
    queue.policy("*", ttl="1 hour")
    queue.policy("t", ttl="0")

    assert queue.message(queue.publish()).expires_at is None
    assert queue.message(queue.publish("other")).expires_at is not None


def test_a_ttl_that_ends_after_the_year_9000_is_clamped_to_it(queue: Queue) -> None:
    queue.policy("t", ttl="3650 days")

    row = queue.message(queue.publish(available_at="8999-12-31"))

    assert row.expires_at.year == 9000


def test_a_redriven_message_gets_a_new_ttl(queue: Queue) -> None:
    queue.policy("t", ttl="1 hour")
    dead = queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])

    queue.rows("SELECT * FROM messages.redrive(%s)", [[dead]])

    (redriven,) = queue.ids()
    assert queue.message(redriven).expires_at > queue.archived(dead).expires_at


# Size


def test_a_payload_up_to_the_limit_is_accepted_and_one_byte_more_is_refused(queue: Queue, publisher: Queue) -> None:
    queue.policy("t", max_payload_bytes=12)
    publisher.publish(payload=sql.SQL("""'"0123456789"'::jsonb"""))

    diagnosis = refused(publisher, payload=sql.SQL("""'"0123456789x"'::jsonb"""))

    assert diagnosis.sqlstate == "PGR04"
    assert diagnosis.message_primary == "a message of topic t has 13 bytes, max_payload_bytes is 12"
    assert "raise max_payload_bytes" in (diagnosis.message_hint or "")


def test_a_compressed_payload_counts_with_its_full_size(queue: Queue) -> None:
    queue.policy("t", max_payload_bytes=1000)

    assert refused(queue, payload=sql.SQL("to_jsonb(repeat('x', 100000))")).sqlstate == "PGR04"


def test_a_body_is_measured_too(queue: Queue) -> None:
    queue.policy("t", max_payload_bytes=3)
    queue.publish(body=b"123")

    assert refused(queue, body=b"1234").sqlstate == "PGR04"


def test_an_array_that_grows_by_append_is_measured_as_a_whole(queue: Queue) -> None:
    queue.policy("t", max_payload_bytes=10)
    sent = [queue.send(n, key="k", on_conflict="append").outcome for n in range(3)]

    with pytest.raises(psycopg.Error) as caught:
        queue.send(3, key="k", on_conflict="append")

    assert caught.value.sqlstate == "PGR04"
    assert sent == ["inserted", "appended", "appended"]
    assert queue.value("SELECT payload FROM messages.message") == [0, 1, 2]


def test_a_dead_message_that_is_larger_than_the_current_limit_can_be_redriven(queue: Queue) -> None:
    dead = queue.publish(payload={"n": 1})
    queue.settle("fail", queue.claim(), ["boom"])
    queue.policy("t", max_payload_bytes=1)

    queue.rows("SELECT * FROM messages.redrive(%s)", [[dead]])

    assert len(queue.ids()) == 1


# Topics that accept no publishes


def test_if_the_defaults_accept_no_publishes_only_topics_that_allow_it_do(queue: Queue, publisher: Queue) -> None:
    queue.policy("*", accept_publishes=False)
    queue.policy("known", accept_publishes=True)
    publisher.publish("known")

    diagnosis = refused(publisher, "typo")

    assert diagnosis.sqlstate == "PGR03"
    assert diagnosis.message_primary == "topic typo does not accept publishes"


def test_by_default_every_topic_accepts_publishes_unless_its_policy_refuses_them(
    queue: Queue, publisher: Queue
) -> None:
    queue.policy("closed", accept_publishes=False)

    assert publisher.publish("whatever") > 0
    assert refused(publisher, "closed").sqlstate == "PGR03"


# Reserved names


def test_names_of_dead_letter_topics_are_reserved_even_without_any_policy(own_queue: Queue) -> None:
    assert own_queue.call("has_policies") is False

    diagnosis = refused(own_queue, "orders.dlq")

    assert diagnosis.sqlstate == "PGR05"
    assert "names that end with .dlq are those of dead letters" in (diagnosis.message_primary or "")


def test_they_are_reserved_with_policies_too_and_for_messages_publish(queue: Queue, publisher: Queue) -> None:
    queue.policy("t", ttl="1 hour")

    assert refused(publisher, "orders.dlq").sqlstate == "PGR05"
    with pytest.raises(psycopg.Error) as caught:
        publisher.send(topic="orders.dlq")
    assert caught.value.sqlstate == "PGR05"


def test_copies_that_the_queue_makes_are_accepted_despite_all_limits(queue: Queue) -> None:
    queue.policy("*", ttl="1 s", max_payload_bytes=1, accept_publishes=False, max_depth=1, publish_rate=1)

    ids = [queue.publish("orders.dlq", payload={"n": 1}, dlq_moved_at=LATER) for _ in range(3)]

    assert [queue.message(each).expires_at for each in ids] == [None] * 3


@pytest.mark.parametrize("topic", ["dlq", "orders.dlq.x", "ordersdlq", "orders.DLQ"])
def test_similar_names_are_not_reserved(queue: Queue, topic: str) -> None:
    assert queue.publish(topic) > 0


# Cost


def test_the_trigger_is_not_called_before_the_first_policy(own_queue: Queue) -> None:
    own_queue.conn.execute("SET track_functions = 'all'")
    with own_queue.conn.transaction():
        own_queue.publish_many(10)
        own_queue.policy("t", ttl="1 hour")
        own_queue.publish_many(3)
        calls = own_queue.rows(
            "SELECT funcname, calls FROM pg_stat_xact_user_functions WHERE funcname IN ('admit_message', 'apply_publish_policies') ORDER BY funcname"
        )

    assert calls == [("admit_message", 3), ("apply_publish_policies", 1)]


@pytest.mark.parametrize("by", ["the transaction itself", "another session"])
def test_a_policy_applies_to_later_publishes_of_open_transactions(queue: Queue, other: Queue, by: str) -> None:
    queue.policy("other", ttl="1 hour")

    with queue.conn.transaction():
        before = queue.publish()
        (other if by == "another session" else queue).policy(ttl="1 hour")
        after = queue.publish()

    assert (queue.message(before).expires_at, queue.message(after).expires_at is None) == (None, False)
