"""messages.clamp_rates: a rate that was raised is not held back by what the old one charged."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.queue import Queue

AHEAD = "SELECT extract(epoch FROM free_at - messages.now())::float FROM messages.rate WHERE kind = %s AND topic = 't'"


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def ahead(queue: Queue, kind: str = "dequeue") -> float:
    """How far ahead of the clock the bucket is full again, in seconds."""
    seconds: float = queue.value(AHEAD, [kind])
    return seconds


def test_a_rate_that_is_raised_holds_at_once(queue: Queue) -> None:
    queue.policy(dequeue_rate=0.01, burst=100)
    queue.publish_many(200)
    assert len(queue.claim()) == 100

    queue.policy(dequeue_rate=100, burst=None)

    queue.later("50 ms")
    assert len(queue.claim()) == 5


def test_one_for_publishers_too(queue: Queue) -> None:
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
def test_whatever_of_it_was_changed(queue: Queue, raised: dict[str, object]) -> None:
    queue.policy("*", dequeue_rate=0.01)
    queue.policy(burst=100)
    queue.publish_many(200)
    queue.claim()

    queue.policy(**({"dequeue_rate": 10} | raised))

    assert ahead(queue) == pytest.approx(10 if raised["topic"] == "*" else 0.2)


def test_when_the_row_of_a_topic_goes_the_rate_of_all_topics_holds(queue: Queue) -> None:
    queue.policy("*", dequeue_rate=50)
    queue.policy(dequeue_rate=0.01)
    queue.publish_many(5)
    queue.claim()

    queue.conn.execute("DELETE FROM messages.topic WHERE topic = 't'")

    assert ahead(queue) == pytest.approx(0.1)


def test_as_long_as_nothing_was_changed_it_changes_nothing(queue: Queue) -> None:
    queue.policy(dequeue_rate=10, burst=4, publish_rate=100)
    queue.publish_many(4)
    queue.claim()
    before = queue.rows("TABLE messages.rate")

    queue.policy(max_attempts=3)
    queue.policy("*", max_attempts=3)
    queue.policy(dequeue_rate=5)

    assert queue.call("clamp_rates") == 0
    assert queue.rows("TABLE messages.rate") == before


def test_of_one_without_a_rate_nothing_is_forgotten(queue: Queue) -> None:
    queue.policy(dequeue_rate=0.01, burst=100)
    queue.publish_many(200)
    queue.claim()

    queue.policy(dequeue_rate=0, publish_rate=5)

    assert ahead(queue) == pytest.approx(10000)


def test_what_was_charged_by_the_old_rate_after_the_change_is_eased_by_the_next_tick(
    queue: Queue, other: Queue
) -> None:
    queue.policy(dequeue_rate=0.01, burst=100)
    other.later("0")
    with queue.conn.transaction():
        queue.policy(dequeue_rate=100)
        other.conn.execute("SELECT messages.charge_rate('dequeue', 't', 0.01, 100, messages.now())")
    assert ahead(queue) == pytest.approx(10000, abs=10)

    queue.call("prune")

    assert ahead(queue) == pytest.approx(1)


def test_a_row_that_somebody_charges_right_now_is_not_waited_for(queue: Queue, other: Queue) -> None:
    queue.policy(dequeue_rate=0.01, burst=100)
    queue.publish_many(100)
    queue.claim()

    with other.conn.transaction():
        other.rows("SELECT FROM messages.rate FOR UPDATE")
        queue.conn.execute("SET lock_timeout = '1s'")
        queue.policy(dequeue_rate=100)
    queue.conn.execute("RESET lock_timeout")

    assert (ahead(queue), queue.call("clamp_rates"), ahead(queue)) == (pytest.approx(10000), 1, pytest.approx(1))
