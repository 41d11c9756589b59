"""messages.prune_rates: the rows of channels in messages.rate do not grow with the number of names ever used."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


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
        "INSERT INTO messages.rate (kind, topic, channel, blocked_until) VALUES ('channel', 't', 'a', messages.now() + interval '1 s')"
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
        "INSERT INTO messages.rate (kind, topic, channel) SELECT 'channel', 't', 'c' || n FROM generate_series(1, 50000) AS n"
    )

    forgotten = own_queue.call("prune")

    assert 0 <= forgotten <= 1000
    assert len(remembered(own_queue)) == 50_000 - forgotten
