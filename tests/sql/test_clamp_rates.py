"""messages.clamp_rates: a raised rate is not held back by what the old rate charged."""

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

    assert ahead(queue) == pytest.approx(10 if raised["topic"] == "*" else 0.2)


def test_when_the_row_of_a_topic_is_deleted_the_default_rate_applies(queue: Queue) -> None:
    queue.policy("*", dequeue_rate=50)
    queue.policy(dequeue_rate=0.01)
    queue.publish_many(5)
    queue.claim()

    queue.conn.execute("DELETE FROM messages.topic WHERE topic = 't'")

    assert ahead(queue) == pytest.approx(0.1)


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

    assert ahead(queue) == pytest.approx(10000)


def test_charges_by_the_old_rate_after_the_change_are_lowered_by_the_next_tick(queue: Queue, other: Queue) -> None:
    queue.policy(dequeue_rate=0.01, burst=100)
    other.later("0")
    with queue.conn.transaction():
        queue.policy(dequeue_rate=100)
        other.conn.execute("SELECT messages.charge_rate('dequeue', 't', 0.01, 100, messages.now())")
    assert ahead(queue) == pytest.approx(10000, abs=10)

    queue.call("prune")

    assert ahead(queue) == pytest.approx(1)


def test_a_row_that_is_being_charged_is_not_waited_for(queue: Queue, other: Queue) -> None:
    queue.policy(dequeue_rate=0.01, burst=100)
    queue.publish_many(100)
    queue.claim()

    with other.conn.transaction():
        other.rows("SELECT FROM messages.rate FOR UPDATE")
        queue.conn.execute("SET lock_timeout = '1s'")
        queue.policy(dequeue_rate=100)
    queue.conn.execute("RESET lock_timeout")

    assert (ahead(queue), queue.call("clamp_rates"), ahead(queue)) == (pytest.approx(10000), 1, pytest.approx(1))
