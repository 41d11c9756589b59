"""Rates of topics and channels: what is charged, left, clamped and forgotten."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.queue import Queue, Row

# messages.charge_channel_rates: a claim closes the channels that it took from for their minimum interval.

CLOSED = """
    SELECT channel, extract(epoch FROM free_at - messages.now())::float AS closed_for
    FROM messages.rate WHERE kind = 'channel' AND topic = 't' AND free_at > '-infinity' ORDER BY channel
"""


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def closed(queue: Queue) -> dict[str, float]:
    return {row.channel: row.closed_for for row in queue.rows(CLOSED)}


def test_only_channels_that_were_claimed_from_are_charged(queue: Queue) -> None:
    queue.policy(channel_min_interval="10 s")
    for channel in "abc":
        queue.publish(channel=channel)

    queue.claim(limit=2, after_channels={"t": "a"})

    assert closed(queue) == {"b": 10, "c": 10}


def test_each_channel_is_charged_with_its_own_interval(queue: Queue) -> None:
    queue.policy(channel_min_interval="10 s")
    queue.conn.execute(
        "INSERT INTO messages.channel (topic, channel, min_interval) "
        "VALUES ('t', 'b', '3 s'), ('t', 'c', '0'), ('t', 'd', NULL)"
    )
    for channel in "abcd":
        queue.publish(channel=channel)

    queue.claim()

    assert closed(queue) == {"a": 10, "b": 3, "d": 10}


def test_an_interval_of_a_single_channel_is_charged_too(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.channel (topic, channel, min_interval) VALUES ('t', 'b', '3 s')")
    for channel in "ab":
        queue.publish(channel=channel)

    queue.claim()

    assert closed(queue) == {"b": 3}


def test_channels_without_an_interval_are_not_written(queue: Queue) -> None:
    queue.policy(channel_concurrency=1)
    queue.publish(channel="a")

    queue.claim()

    assert closed(queue) == {}


def test_a_message_that_expired_instead_of_being_claimed_is_not_charged(queue: Queue) -> None:
    queue.policy(channel_min_interval="10 s")
    queue.publish(channel="a", expires_at="2026-01-01")

    assert queue.claim() == []

    assert closed(queue) == {}


# messages.charge_rate: claimed messages are charged, once for the batch.

AHEAD = (
    "SELECT extract(epoch FROM free_at - messages.now())::float FROM messages.rate "
    "WHERE kind = 'dequeue' AND topic = %s"
)


def ahead(queue: Queue, topic: str = "t") -> float:
    return float(queue.value(AHEAD, [topic]))


def test_a_claim_charges_what_it_claimed_and_not_its_limit(queue: Queue) -> None:
    queue.policy(dequeue_rate=10, burst=100)
    queue.publish_many(3)
    queue.publish_many(2, channel="c")

    queue.claim(limit=100)

    assert ahead(queue) == pytest.approx(0.5)


def test_a_claim_that_is_rolled_back_or_finds_nothing_charges_nothing(queue: Queue) -> None:
    queue.policy(dequeue_rate=10, burst=100)
    queue.claim()
    queue.publish()

    with queue.conn.transaction(force_rollback=True):
        queue.claim()

    assert queue.rows("SELECT FROM messages.rate") == []


def test_a_message_that_ended_instead_of_being_claimed_is_not_charged(queue: Queue) -> None:
    queue.policy(dequeue_rate=10, burst=100)
    queue.publish(expires_at="2026-01-01")

    assert queue.claim() == []

    assert queue.rows("SELECT FROM messages.rate") == []


# messages.clamp_rates: a raised rate is not held back by what the old rate charged.

CLAMP_RATES_AHEAD = (
    "SELECT extract(epoch FROM free_at - messages.now())::float FROM messages.rate WHERE kind = %s AND topic = 't'"
)


def clamp_rates_ahead(queue: Queue, kind: str = "dequeue") -> float:
    """How far ahead of the clock the bucket is full again, in seconds."""
    seconds: float = queue.value(CLAMP_RATES_AHEAD, [kind])
    return seconds


def test_a_raised_rate_applies_at_once(queue: Queue) -> None:
    queue.policy(dequeue_rate=0.01, burst=100)
    queue.publish_many(200)
    assert len(queue.claim()) == 100

    queue.policy(dequeue_rate=100, burst=None)

    queue.later("50 ms")
    assert len(queue.claim()) == 5


def test_a_raised_publish_rate_too(queue: Queue) -> None:
    queue.policy(publish_rate=0.01, burst=100)
    queue.publish_many(100)

    queue.policy(publish_rate=100, burst=None)

    with pytest.raises(psycopg.Error, match="too soon") as caught:
        queue.publish()
    assert caught.value.diag.message_hint == "try again in 0.010 s"
    queue.later("10 ms")
    queue.publish()


@pytest.mark.parametrize(
    "raised", [{"topic": "*"}, {"topic": "t", "burst": 2}], ids=["for all topics", "only the burst"]
)
def test_every_kind_of_change_applies(queue: Queue, raised: dict[str, object]) -> None:
    queue.policy("*", dequeue_rate=0.01)
    queue.policy(burst=100)
    queue.publish_many(200)
    queue.claim()

    queue.policy(**({"dequeue_rate": 10} | raised))

    assert clamp_rates_ahead(queue) == pytest.approx(10 if raised["topic"] == "*" else 0.2)


def test_when_the_row_of_a_topic_is_deleted_the_default_rate_applies(queue: Queue) -> None:
    queue.policy("*", dequeue_rate=50)
    queue.policy(dequeue_rate=0.01)
    queue.publish_many(5)
    queue.claim()

    queue.conn.execute("DELETE FROM messages.topic WHERE topic = 't'")

    assert clamp_rates_ahead(queue) == pytest.approx(0.1)


def test_without_a_change_it_changes_nothing(queue: Queue) -> None:
    queue.policy(dequeue_rate=10, burst=4, publish_rate=100)
    queue.publish_many(4)
    queue.claim()
    before = queue.rows("TABLE messages.rate")

    queue.policy(max_attempts=3)
    queue.policy("*", max_attempts=3)
    queue.policy(dequeue_rate=5)

    assert queue.call("clamp_rates") == 0
    assert queue.rows("TABLE messages.rate") == before


def test_a_topic_without_a_rate_keeps_its_charges(queue: Queue) -> None:
    queue.policy(dequeue_rate=0.01, burst=100)
    queue.publish_many(200)
    queue.claim()

    queue.policy(dequeue_rate=0, publish_rate=5)

    assert clamp_rates_ahead(queue) == pytest.approx(10000)


def test_charges_by_the_old_rate_after_the_change_are_lowered_by_the_next_tick(queue: Queue, other: Queue) -> None:
    queue.policy(dequeue_rate=0.01, burst=100)
    other.later("0")
    with queue.conn.transaction():
        queue.policy(dequeue_rate=100)
        other.conn.execute("SELECT messages.charge_rate('dequeue', 't', 0.01, 100, messages.now())")
    assert clamp_rates_ahead(queue) == pytest.approx(10000, abs=10)

    queue.call("prune")

    assert clamp_rates_ahead(queue) == pytest.approx(1)


def test_a_row_that_is_being_charged_is_not_waited_for(queue: Queue, other: Queue) -> None:
    queue.policy(dequeue_rate=0.01, burst=100)
    queue.publish_many(100)
    queue.claim()

    with other.conn.transaction():
        other.rows("SELECT FROM messages.rate FOR UPDATE")
        queue.conn.execute("SET lock_timeout = '1s'")
        queue.policy(dequeue_rate=100)
    queue.conn.execute("RESET lock_timeout")

    assert (clamp_rates_ahead(queue), queue.call("clamp_rates"), clamp_rates_ahead(queue)) == (
        pytest.approx(10000),
        1,
        pytest.approx(1),
    )


# messages.prune_rates: the rows of channels in messages.rate do not grow with the number of names ever used.


def remembered(queue: Queue) -> list[str]:
    return [row.channel for row in queue.rows("SELECT channel FROM messages.rate WHERE kind = 'channel' ORDER BY 1")]


def prune(queue: Queue) -> int:
    return int(queue.call("prune_rates", 100))


def test_a_channel_without_messages_is_deleted_and_one_with_messages_is_not(queue: Queue) -> None:
    queue.policy(channel_concurrency=1)
    for channel in ("done", "running", "waiting", "waiting"):
        queue.publish(channel=channel)
    claimed = queue.claim()
    queue.settle("complete", [c for c in claimed if c.channel in ("done", "waiting")])

    assert prune(queue) == 1

    assert remembered(queue) == ["running", "waiting"]


def test_a_closed_channel_is_kept_until_it_opens(queue: Queue) -> None:
    queue.policy(channel_min_interval="10 s")
    queue.publish(channel="a")
    queue.settle("complete", queue.claim())

    assert prune(queue) == 0
    queue.later("10 s")
    assert prune(queue) == 1


def test_a_held_channel_is_kept(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.rate (kind, topic, channel, blocked_until) "
        "VALUES ('channel', 't', 'a', messages.now() + interval '1 s')"
    )

    assert prune(queue) == 0
    queue.later("1 s")
    assert prune(queue) == 1


def test_rates_of_topics_are_kept(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.rate (kind, topic) VALUES ('dequeue', 't'), ('publish', 't')")

    assert prune(queue) == 0


def test_a_channel_that_a_claim_has_locked_is_left_and_not_waited_for(queue: Queue, other: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.rate (kind, topic, channel) VALUES ('channel', 't', 'a'), ('channel', 't', 'b')"
    )
    with other.conn.transaction():
        other.value("SELECT messages.lock_channels('t', ARRAY['a'])::text")

        assert prune(queue) == 1

    assert remembered(queue) == ["a"]


def test_a_claim_during_the_deletion_keeps_the_limit(queue: Queue, other: Queue) -> None:
    queue.policy(channel_concurrency=1)
    queue.publish(channel="a")
    queue.settle("complete", queue.claim())
    with queue.conn.transaction():
        assert prune(queue) == 1
        other.publish_many(2, channel="a")

        assert other.claim() == []

    assert len(other.claim()) == 1
    assert queue.claim() == []


def test_the_tick_checks_a_part_of_the_rows(own_queue: Queue) -> None:
    own_queue.conn.execute(
        "INSERT INTO messages.rate (kind, topic, channel) SELECT 'channel', 't', 'c' || n "
        "FROM generate_series(1, 50000) AS n"
    )

    forgotten = own_queue.call("prune")

    assert 0 <= forgotten <= 1000
    assert len(remembered(own_queue)) == 50_000 - forgotten


# messages.rate_slots: how many messages a rate permits now, and when to ask again.

SLOTS = (
    "SELECT slots, extract(epoch FROM next_at - messages.now())::float AS next_in "
    "FROM messages.rate_slots('dequeue', 't', %s, %s, messages.now())"
)


def slots(queue: Queue, rate: float, burst: int) -> Row:
    return queue.row(SLOTS, [rate, burst])


def rate_slots_charge(queue: Queue, rate: float, count: int) -> None:
    queue.conn.execute("SELECT messages.charge_rate('dequeue', 't', %s, %s, messages.now())", [rate, count])


@pytest.mark.parametrize(("rate", "seconds"), [(3, 1 / 3), (7, 1 / 7), (1000, 0.001), (0.25, 4), (999_999, 1e-6)])
def test_a_message_is_due_at_its_exact_microsecond_and_not_one_message_later(
    queue: Queue, rate: float, seconds: float
) -> None:
    rate_slots_charge(queue, rate, 1)

    queue.later(f"{seconds:.6f} s")

    assert slots(queue, rate, 1).slots == 1


def test_at_most_the_burst_is_saved(queue: Queue) -> None:
    rate_slots_charge(queue, 10, 1)

    queue.later("1 day")

    assert slots(queue, 10, 3).slots == 3


@pytest.mark.parametrize(("rate", "burst", "next_in"), [(10, 1, 0.1), (10, 3, 0.1), (1000, 100, 0.025), (2, 8, 1.0)])
def test_the_next_claim_is_when_a_quarter_of_the_burst_is_permitted(
    queue: Queue, rate: float, burst: int, next_in: float
) -> None:
    rate_slots_charge(queue, rate, burst)

    assert slots(queue, rate, burst).next_in == pytest.approx(next_in)


def test_a_claim_does_not_wait_for_a_transaction_that_changes_the_rate_and_stays_open(
    queue: Queue, other: Queue
) -> None:
    queue.policy(dequeue_rate=1, burst=10)
    queue.publish_many(20)
    assert len(queue.claim(limit=10)) == 10
    queue.later("5 s")

    with other.conn.transaction():
        other.policy(dequeue_rate=100, burst=10)
        queue.conn.execute("SET lock_timeout = '10s'")
        claimed, left = queue.claim_with_next_due()
        assert (claimed, list(left.held_back)) == ([], ["topic t"])

    queue.later("1 s")
    assert len(queue.claim()) == 10
