"""messages.stats: the numbers of messages by topic, at a cost that does not grow with them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.sql.queue import Queue


def stats(queue: Queue, bound: int = 10000) -> dict[str, Any]:
    return {row.topic: row for row in queue.rows("SELECT * FROM messages.stats(%s)", [bound])}


def test_an_empty_queue_has_no_topic(queue: Queue) -> None:
    assert stats(queue) == {}


def test_it_counts_ready_delayed_and_running_messages(queue: Queue) -> None:
    queue.publish_many(2)
    queue.claim()
    queue.publish_many(3, priority=1)
    queue.publish_many(4, channel="c")
    queue.publish_many(5, wait="1 hour")
    queue.publish_many(6, wait="1 hour", channel="c")

    row = stats(queue)["t"]

    assert (row.ready, row.delayed, row.running, row.dead_last_day) == (7, 11, 2, 0)


def test_it_counts_the_dead_messages_of_the_last_day(queue: Queue) -> None:
    queue.publish_many(3)
    queue.settle("fail", queue.claim(limit=2), ["boom"] * 2)
    queue.settle("complete", queue.claim())
    queue.conn.execute(
        """
        INSERT INTO messages.message_archive (id, topic, priority, created_at, available_at, attempts, result, archived_at)
        VALUES (1000000, 't', 5, now(), now(), 1, 'failed', now() - interval '25 hours')
        """
    )

    assert stats(queue)["t"].dead_last_day == 2


def kill(queue: Queue, topic: str, count: int) -> None:
    queue.conn.execute(
        """
        INSERT INTO messages.message_archive (id, topic, priority, created_at, available_at, attempts, result, archived_at)
        SELECT nextval('messages.message_id_seq'), %s, 5, now(), now(), 1, 'failed', now() FROM generate_series(1, %s)
        """,
        [topic, count],
    )


def dead(queue: Queue, bound: int) -> dict[str, int]:
    return {topic: row.dead_last_day for topic, row in stats(queue, bound).items()}


def test_dead_messages_of_one_topic_take_nothing_from_the_count_of_another(queue: Queue) -> None:
    for topic in ("a", "b", "c"):
        kill(queue, topic, 25)
    kill(queue, "d", 3)

    assert dead(queue, 20) == {"a": 20, "b": 20, "c": 20, "d": 3}


def test_the_count_of_a_topic_never_falls_while_more_die(queue: Queue) -> None:
    # The last of the alphabet first: the first topic that is read takes nothing from the others.
    before = {"c": 0, "b": 0, "a": 0}
    for _ in range(4):
        for topic in before:
            kill(queue, topic, 8)
            now = dead(queue, 20)
            assert all(now.get(each, 0) >= before[each] for each in before), (before, now)
            before.update(now)


@pytest.mark.parametrize("channel", [None, "c"])
def test_it_has_the_age_of_the_oldest_ready_message(queue: Queue, channel: str | None) -> None:
    for wait in ("-10 s", "-1 hour", "1 hour"):
        queue.publish(wait=wait, channel=channel)

    assert stats(queue)["t"].oldest_ready_s == pytest.approx(3600, abs=60)


def test_without_ready_messages_there_is_no_age(queue: Queue) -> None:
    queue.publish(wait="1 hour")

    assert stats(queue)["t"].oldest_ready_s is None


def test_it_lists_topics_that_only_run_died_or_have_a_policy(queue: Queue) -> None:
    queue.publish("running")
    queue.claim("running")
    queue.publish("dead")
    queue.settle("fail", queue.claim("dead"), ["boom"])
    queue.policy("planned", max_attempts=2)

    found = stats(queue)

    assert list(found) == ["dead", "planned", "running"]
    assert (found["running"].running, found["planned"].ready) == (1, 0)


def test_it_shows_whether_a_live_worker_handles_the_topic(queue: Queue) -> None:
    queue.publish("a")
    queue.publish("b")
    queue.call("register_worker", "w", "host", 42, "1.0", ["a"], 10)

    assert [row.handled for row in stats(queue).values()] == [True, False]


def test_a_retried_message_is_delayed(queue: Queue) -> None:
    queue.publish(max_attempts=2)
    queue.settle("retry", queue.claim(), ["boom"], [timedelta(hours=1)])

    assert (stats(queue)["t"].ready, stats(queue)["t"].delayed) == (0, 1)


def test_counts_stop_at_the_bound(queue: Queue) -> None:
    queue.publish_many(30)
    queue.publish_many(30, priority=9)
    queue.publish_many(30, wait="1 hour")

    row = stats(queue, bound=20)["t"]

    assert (row.ready, row.delayed) == (20, 20)


def test_its_cost_is_bounded_however_many_messages_there_are(own_queue: Queue) -> None:
    own_queue.publish_many(30_000)
    own_queue.publish_many(30_000, channel="c")

    assert own_queue.buffers("SELECT * FROM messages.stats(100)") < 1000
