"""messages.prune_alerts: the outbox does not grow for ever."""

from __future__ import annotations

from tests.sql.deaths import die
from tests.sql.queue import Queue


def alerts(queue: Queue) -> int:
    count: int = queue.value("SELECT count(*) FROM messages.alert")
    return count


def deliver(queue: Queue) -> None:
    queue.conn.execute("UPDATE messages.alert SET delivered_at = now()")


def test_what_was_delivered_a_week_ago_is_forgotten(queue: Queue) -> None:
    die(queue)
    deliver(queue)

    queue.later("6 days")
    assert (queue.call("prune_alerts"), alerts(queue)) == (0, 1)
    queue.later("1 day 1 minute")
    assert (queue.call("prune_alerts"), alerts(queue)) == (1, 0)


def test_what_nobody_delivered_is_kept_as_long_as_messages_are_by_default(queue: Queue) -> None:
    die(queue)

    queue.later("29 days")
    assert (queue.call("prune_alerts"), alerts(queue)) == (0, 1)
    queue.later("1 day 1 minute")
    assert (queue.call("prune_alerts"), alerts(queue)) == (1, 0)


def test_a_call_is_bounded(queue: Queue) -> None:
    for _ in range(5):
        die(queue)
    deliver(queue)
    queue.later("8 days")

    assert queue.call("prune_alerts", 3) == 3
    assert alerts(queue) == 2
