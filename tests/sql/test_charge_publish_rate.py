"""messages.charge_publish_rate: publish_rate is never exceeded, exactly, no matter how many sessions publish at the same time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.sql.queue import Background, Queue


def refusal(queue: Queue, count: int = 1, topic: str = "t") -> psycopg.errors.Diagnostic:
    """Publish so many in one statement and return the error that refused it."""
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
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    queue.policy("t", publish_rate=0.01)
    queue.conn.execute("INSERT INTO messages.rate (kind, topic, free_at) VALUES ('publish', 't', 'epoch')")
    with other.conn.transaction():
        other.publish()
        second = background.start(queue.publish)
        eventually(lambda: background.is_blocked(queue))

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


@pytest.mark.parametrize("is_new", [True, False])
def test_an_open_publisher_is_waited_for_for_a_bounded_time(queue: Queue, other: Queue, is_new: bool) -> None:
    queue.policy("t", publish_rate=1000)
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
