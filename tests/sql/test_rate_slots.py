"""messages.rate_slots: how many messages a rate permits now, and when to ask again."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue, Row

SLOTS = "SELECT slots, extract(epoch FROM next_at - messages.now())::float AS next_in FROM messages.rate_slots('dequeue', 't', %s, %s, messages.now())"


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def slots(queue: Queue, rate: float, burst: int) -> Row:
    return queue.row(SLOTS, [rate, burst])


def charge(queue: Queue, rate: float, count: int) -> None:
    queue.conn.execute("SELECT messages.charge_rate('dequeue', 't', %s, %s, messages.now())", [rate, count])


@pytest.mark.parametrize("burst", [1, 7, 1000])
def test_a_rate_that_was_never_charged_permits_its_burst(queue: Queue, burst: int) -> None:
    assert slots(queue, 10, burst).slots == burst


def test_charged_messages_are_missing_until_their_time_has_passed(queue: Queue) -> None:
    charge(queue, 10, 4)
    assert slots(queue, 10, 4).slots == 0

    for passed in (1, 2, 3, 4, 4):
        queue.later("0.1 s")
        assert slots(queue, 10, 4).slots == passed


@pytest.mark.parametrize(("rate", "seconds"), [(3, 1 / 3), (7, 1 / 7), (1000, 0.001), (0.25, 4), (999_999, 1e-6)])
def test_a_message_is_due_at_its_exact_microsecond_and_not_one_message_later(
    queue: Queue, rate: float, seconds: float
) -> None:
    charge(queue, rate, 1)

    queue.later(f"{seconds:.6f} s")

    assert slots(queue, rate, 1).slots == 1


def test_at_most_the_burst_is_saved(queue: Queue) -> None:
    charge(queue, 10, 1)

    queue.later("1 day")

    assert slots(queue, 10, 3).slots == 3


@pytest.mark.parametrize(("rate", "burst", "next_in"), [(10, 1, 0.1), (10, 3, 0.1), (1000, 100, 0.025), (2, 8, 1.0)])
def test_the_next_claim_is_when_a_quarter_of_the_burst_is_permitted(
    queue: Queue, rate: float, burst: int, next_in: float
) -> None:
    charge(queue, rate, burst)

    assert slots(queue, rate, burst).next_in == pytest.approx(next_in)


def test_a_raised_rate_applies_at_once_to_earlier_charges(queue: Queue) -> None:
    charge(queue, 1, 10)

    assert slots(queue, 1, 1).slots < 0
    queue.later("9.9 s")
    assert slots(queue, 10, 1).slots == 0
    queue.later("0.1 s")
    assert slots(queue, 10, 1).slots == 1


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
