"""messages.claim_topic: the messages of one topic without a channel. (What a claim promises as a whole is in test_claim.py.)"""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

CLAIM_TOPIC = "SELECT id FROM messages.claim_topic(%s, 'w', messages.now(), 't', %s, NULL)"


@pytest.fixture(autouse=True)
def bytes_left(queue: Queue) -> None:
    """Let the bytes not be what ends the walk."""
    queue.conn.execute("SET messages.bytes_left = 1000000")


def mark(queue: Queue, priority: int, at: str) -> None:
    queue.conn.execute("INSERT INTO messages.low_water (topic, priority, at) VALUES ('t', %s, %s)", [priority, at])


def test_it_walks_over_the_priorities_until_the_limit_is_reached(queue: Queue) -> None:
    low, high, middle = queue.publish(priority=9), queue.publish(priority=0), queue.publish(priority=5)

    assert [row.id for row in queue.rows(CLAIM_TOPIC, [1, 2])] == [high, middle]
    assert [row.id for row in queue.rows(CLAIM_TOPIC, [1, 2])] == [low]


def test_a_priority_with_a_mark_hides_none_without(queue: Queue) -> None:
    mark(queue, 5, "2026-01-01")
    published = [queue.publish(priority=p) for p in (0, 4, 5, 6, 9)]

    assert [row.id for row in queue.rows(CLAIM_TOPIC, [1, 9])] == published


def test_it_reads_from_the_mark_on(queue: Queue) -> None:
    mark(queue, 5, "2026-01-02")
    queue.publish(available_at="2026-01-01")
    above = queue.publish(available_at="2026-01-02")

    assert [row.id for row in queue.rows(CLAIM_TOPIC, [1, 9])] == [above]


@pytest.mark.parametrize("claim_id", [64, 128, 6400])
def test_every_64th_claim_reads_from_the_left_edge_so_that_no_mark_can_hide_a_message_for_ever(
    queue: Queue, claim_id: int
) -> None:
    mark(queue, 5, "2026-01-02")
    below = queue.publish(available_at="2026-01-01")

    assert [row.id for row in queue.rows(CLAIM_TOPIC, [claim_id, 9])] == [below]
