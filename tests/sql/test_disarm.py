"""messages.disarm: a worker records that it is awake. (Which workers a publish notifies: test_new_message.py.)"""

from __future__ import annotations

from tests.sql.queue import Queue

ARMED = "SELECT worker FROM messages.sleeper WHERE armed_until > clock_timestamp()"


def test_a_disarmed_worker_is_no_longer_armed(queue: Queue) -> None:
    queue.arm("a")
    queue.arm("b")

    queue.call("disarm", "a")

    assert [row.worker for row in queue.rows(ARMED)] == ["b"]


def test_disarming_a_worker_that_is_not_armed_writes_nothing(queue: Queue) -> None:
    queue.arm()
    queue.call("disarm", "sleeper")
    before = queue.row("SELECT xmin, * FROM messages.sleeper")

    queue.call("disarm", "sleeper")
    queue.call("disarm", "awake")

    assert queue.rows("SELECT xmin, * FROM messages.sleeper") == [before]
