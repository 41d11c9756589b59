"""messages.arm: a worker records that it is about to sleep. (Which workers a publish notifies: test_new_message.py.)"""

from __future__ import annotations

from datetime import timedelta

from tests.sql.queue import Queue

SLEEPERS = "SELECT worker, topics, next_look_at - clock_timestamp() AS look_in, armed_until - clock_timestamp() AS armed_for FROM messages.sleeper ORDER BY worker"


def test_the_row_has_the_topics_of_the_worker_and_the_time_of_its_next_poll(queue: Queue) -> None:
    queue.call("arm", "w", ["a", "b"], timedelta(minutes=10))

    sleeper = queue.row(SLEEPERS)
    assert (sleeper.worker, sleeper.topics) == ("w", ["a", "b"])
    assert timedelta(minutes=9) < sleeper.look_in <= timedelta(minutes=10)
    assert timedelta(minutes=19) < sleeper.armed_for <= timedelta(minutes=20)


def test_arming_again_updates_the_row(queue: Queue) -> None:
    queue.call("arm", "w", ["a"], timedelta(minutes=10))

    queue.call("arm", "w", ["b"], timedelta(minutes=30))

    sleeper = queue.row(SLEEPERS)
    assert sleeper.topics == ["b"]
    assert timedelta(minutes=29) < sleeper.look_in <= timedelta(minutes=30)
    assert timedelta(minutes=59) < sleeper.armed_for <= timedelta(minutes=60)


def test_each_worker_has_its_own_row(queue: Queue) -> None:
    for worker in ("a", "b"):
        queue.call("arm", worker, None, timedelta(minutes=1))

    assert [row.worker for row in queue.rows(SLEEPERS)] == ["a", "b"]


def test_armed_until_is_raised_before_the_row_is_committed(queue: Queue) -> None:
    queue.call("arm", "w", ["t"], timedelta(hours=1))

    assert queue.value(
        "SELECT pg_sequence_last_value('messages.armed_until') > extract(epoch FROM now() + interval '2 hours') - 60"
    )
