"""messages.charge_rate: claimed messages are charged, once for the batch."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

CHARGE = "SELECT messages.charge_rate('dequeue', %s, %s, %s, messages.now())"
AHEAD = "SELECT extract(epoch FROM free_at - messages.now())::float FROM messages.rate WHERE kind = 'dequeue' AND topic = %s"


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def charge(queue: Queue, rate: float, count: int, topic: str = "t") -> None:
    queue.conn.execute(CHARGE, [topic, rate, count])


def ahead(queue: Queue, topic: str = "t") -> float:
    return float(queue.value(AHEAD, [topic]))


def test_each_message_advances_the_time_by_one_over_the_rate(queue: Queue) -> None:
    charge(queue, 10, 3)
    assert ahead(queue) == pytest.approx(0.3)

    charge(queue, 10, 2)

    assert ahead(queue) == pytest.approx(0.5)


def test_unused_time_is_not_saved(queue: Queue) -> None:
    charge(queue, 10, 1)
    queue.later("1 hour")

    charge(queue, 10, 1)

    assert ahead(queue) == pytest.approx(0.1)


def test_topics_are_charged_separately(queue: Queue) -> None:
    charge(queue, 10, 1, "t")
    charge(queue, 10, 5, "u")

    assert [ahead(queue, "t"), ahead(queue, "u")] == [pytest.approx(0.1), pytest.approx(0.5)]


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
