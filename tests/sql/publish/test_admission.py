"""What a publish must pass: TTL, size, closed topics, reserved names, rates."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import psycopg
import pytest
from psycopg import errors, sql

from tests.server.postgres import Database
from tests.sql.queue import Background, Queue, Row

# admit_message: The trigger admit_message: TTL, size, topics that accept no publishes, reserved names. Limits that are
# counted: test_depth.py.

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
            "SELECT funcname, calls FROM pg_stat_xact_user_functions "
            "WHERE funcname IN ('admit_message', 'apply_publish_policies') ORDER BY funcname"
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


# messages.publish_policy: the policy for publishing to a topic: its own row, else the defaults; 0 lifts a limit.


def admission(queue: Queue, topic: str = "t") -> Row:
    return queue.row("SELECT * FROM messages.publish_policy(%s)", [topic])


def test_the_topics_own_row_wins_over_the_defaults(queue: Queue) -> None:
    queue.policy("*", ttl="1 hour", key_ttl="1 hour", max_depth=1, on_full="drop", max_payload_bytes=1, publish_rate=1)
    queue.policy("t", ttl="2 hours", max_depth=2, max_payload_bytes=2, publish_rate=2)

    found = admission(queue)

    assert (found.ttl, found.key_ttl) == (timedelta(hours=2), timedelta(hours=1))
    assert (found.max_depth, found.on_full, found.max_payload_bytes, found.publish_rate) == (2, "drop", 2, 2)


def test_0_lifts_the_limits_of_the_defaults(queue: Queue) -> None:
    queue.policy("*", ttl="1 hour", key_ttl="1 hour", max_depth=1, publish_rate=1)
    queue.policy("t", ttl="0", key_ttl="0", max_depth=0, publish_rate=0)

    found = admission(queue)

    assert (found.ttl, found.key_ttl, found.max_depth, found.publish_rate) == (None,) * 4


# apply_publish_policies: The trigger apply_publish_policies: counters are charged once per statement, whatever the
# number of rows. The functions that it calls have tests of their own.

LIMITS = {"max_depth": 1_000_000, "publish_rate": 1_000_000, "burst": 1_000_000}


@pytest.mark.parametrize("rows", [1, 1000])
def test_one_statement_makes_one_change_of_each_counter(queue: Queue, rows: int) -> None:
    queue.policy("t", **LIMITS)
    queue.publish()
    written = (
        "SELECT coalesce(sum(n_tup_upd), 0) FROM pg_stat_xact_user_tables "
        "WHERE schemaname = 'messages' AND relname IN ('depth', 'rate')"
    )

    with queue.conn.transaction():
        before = queue.value(written)
        queue.publish_many(rows)
        assert queue.value(written) == before + 2


def test_a_statement_that_inserts_nothing_charges_nothing(queue: Queue) -> None:
    queue.policy("t", **LIMITS)

    queue.publish_many(0)

    assert queue.rows("SELECT FROM messages.depth") == []
    assert queue.rows("SELECT FROM messages.rate") == []


def test_a_publish_inside_the_statement_of_another_publish_never_exceeds_the_limit(queue: Queue) -> None:
    queue.policy("t", max_depth=2, on_full="drop")
    nested = "to_jsonb(coalesce((SELECT p.id FROM messages.publish('t', to_jsonb(n)) AS p), 0))"

    with pytest.raises(psycopg.Error) as caught:
        queue.publish_many(3, payload=sql.SQL(nested))

    assert caught.value.sqlstate == "PGR01"
    assert queue.ids() == []


# messages.charge_publish_rate: publish_rate is never exceeded, exactly, no matter how many sessions publish at the same
# time.


def refusal(queue: Queue, count: int = 1, topic: str = "t") -> psycopg.errors.Diagnostic:
    """Publish this many in one statement and return the error that refused it."""
    with pytest.raises(psycopg.Error) as caught:
        queue.publish_many(count, topic)
    assert caught.value.sqlstate == "PGR02"
    return caught.value.diag


def test_an_idle_topic_accepts_messages_of_one_second_at_once_and_then_says_when_to_retry(queue: Queue) -> None:
    queue.policy("t", publish_rate=5)
    queue.later("0")
    queue.publish_many(5)

    refused = refusal(queue)

    assert refused.message_primary == "publish_rate of topic t is 5 a second: this is too soon"
    assert refused.message_hint == "try again in 0.200 s"


def test_as_time_passes_it_accepts_as_many_more_as_the_rate_allows(queue: Queue) -> None:
    queue.policy("t", publish_rate=5)
    queue.later("0")
    queue.publish_many(5)

    queue.later("400 ms")
    queue.publish()
    queue.publish()

    assert refusal(queue).message_hint == "try again in 0.200 s"


def test_after_a_long_idle_time_it_accepts_the_burst_and_not_more(queue: Queue) -> None:
    queue.policy("t", publish_rate=5, burst=8)
    queue.later("0")
    queue.publish()

    queue.later("1 hour")
    queue.publish_many(8)

    refusal(queue)


def test_a_statement_larger_than_the_burst_is_always_refused_and_the_error_says_so(queue: Queue) -> None:
    queue.policy("t", publish_rate=5)

    refused = refusal(queue, 6)

    assert refused.message_primary == "publish_rate of topic t is 5 a second with a burst of 5: 6 at once never fit"
    assert refused.message_hint == "publish fewer in one statement, or raise burst"


def test_a_rate_below_one_per_second_accepts_one_message(queue: Queue) -> None:
    queue.policy("t", publish_rate=0.1)
    queue.later("0")
    queue.publish()

    assert refusal(queue).message_hint == "try again in 10.000 s"


def test_a_publish_that_is_rolled_back_or_refused_is_not_charged(queue: Queue) -> None:
    queue.policy("t", publish_rate=5)
    queue.later("0")
    with queue.conn.transaction(force_rollback=True):
        queue.publish_many(5)
    refusal(queue, 6)

    assert len(queue.publish_many(5)) == 5


def test_each_topic_is_charged_separately_and_topics_without_a_rate_are_not(queue: Queue) -> None:
    queue.policy("*", publish_rate=2)
    queue.policy("free", publish_rate=0)
    queue.later("0")
    queue.publish_many(2, "a")
    queue.publish_many(2, "b")
    queue.publish_many(100, "free")

    assert [row.topic for row in queue.rows("SELECT topic FROM messages.rate ORDER BY topic")] == ["a", "b"]


def test_a_replaced_key_is_not_charged(queue: Queue) -> None:
    queue.policy("t", publish_rate=1)
    queue.later("0")

    whats = [queue.send(n, key="k", on_conflict="replace").outcome for n in range(3)]

    assert whats == ["inserted", "replaced", "replaced"]


def test_a_redrive_is_never_refused(queue: Queue) -> None:
    queue.policy("t", publish_rate=1)
    dead = queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])
    queue.rows("SELECT * FROM messages.redrive(%s)", [[dead]])

    assert len(queue.ids()) == 1


def test_a_publisher_waits_for_an_uncommitted_one_and_then_has_the_rest(
    queue: Queue, other: Queue, background: Background
) -> None:
    queue.policy("t", publish_rate=0.01)
    queue.conn.execute("INSERT INTO messages.rate (kind, topic, free_at) VALUES ('publish', 't', 'epoch')")
    with other.conn.transaction():
        other.publish()
        second = background.start_blocked(queue, queue.publish)

    with pytest.raises(psycopg.Error, match="this is too soon"):
        second.result(timeout=60)


def test_many_concurrent_publishers_never_exceed_the_rate_and_reach_it(
    queue: Queue, other: Queue, third: Queue, background: Background
) -> None:
    rate, burst = 50, 5
    queue.policy("t", publish_rate=rate, burst=burst)
    published: list[int] = []

    def publish(by: Queue) -> None:
        while len(published) < 100:
            try:
                published.append(by.publish())
            except psycopg.Error as error:
                if error.sqlstate != "PGR02":
                    raise

    for each in [background.start(publish, by) for by in (queue, other, third)]:
        each.result(60)

    times = [row.created_at for row in queue.rows("SELECT created_at FROM messages.message ORDER BY created_at")]
    took = (times[-1] - times[0]) / timedelta(seconds=1)
    # created_at is read a moment before the rate is charged: each of the three may have one that was charged later.
    assert len(times) <= burst + rate * took + 3
    # After a pause without publishes, on a busy machine, only the burst is available.
    used = sum(min((after - before) / timedelta(seconds=1), burst / rate) for before, after in pairwise(times))
    assert len(times) >= 0.9 * rate * used


@pytest.mark.parametrize("limit", ["publish_rate", "max_depth"])
@pytest.mark.parametrize("is_new", [True, False])
def test_an_open_publisher_is_waited_for_for_a_bounded_time(
    queue: Queue, other: Queue, is_new: bool, limit: str
) -> None:
    queue.policy("t", **{limit: 1000})
    if not is_new:
        queue.publish("t")
    other.conn.execute("SET lock_timeout = '10ms'")
    with queue.conn.transaction():
        queue.publish("t")

        with pytest.raises(errors.LockNotAvailable):
            other.publish("t")
    with other.conn.transaction():
        other.publish("t")
        assert other.value("SHOW lock_timeout") == "10ms"
