"""messages.prune_alerts: deletes old alerts, notifications and silences."""

from __future__ import annotations

from tests.sql.deaths import die
from tests.sql.queue import Queue
from tests.sql.sinks import Sink, raise_alert


def alerts(queue: Queue) -> int:
    count: int = queue.value("SELECT count(*) FROM messages.alert")
    return count


def deliver(queue: Queue) -> None:
    queue.conn.execute("UPDATE messages.alert SET delivered_at = now()")


def test_alerts_that_were_delivered_a_week_ago_are_deleted(queue: Queue) -> None:
    die(queue)
    deliver(queue)

    queue.later("6 days")
    assert (queue.call("prune_alerts"), alerts(queue)) == (0, 1)
    queue.later("1 day 1 minute")
    assert (queue.call("prune_alerts"), alerts(queue)) == (1, 0)


def test_undelivered_alerts_are_kept_for_the_default_retention(queue: Queue) -> None:
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


def test_sent_notifications_and_closed_incidents_are_deleted_after_a_week_and_silences_after_a_month(
    queue: Queue,
) -> None:
    queue.stop_clock("2026-01-01")
    sink = Sink(queue)
    raise_alert(queue)
    sink.deliver_all()
    queue.call("silence", topic="t", **{"for": "1 hour"})
    queue.later("1 hour")
    sink.next()
    left = [("alert_delivery", 1), ("alert_incident", 1), ("silence", 1), ("alert_sink", 1)]
    assert [(table, count(queue, table)) for table, _ in left] == left

    queue.later("7 days")
    queue.call("prune_alerts")

    assert [count(queue, table) for table, _ in left] == [0, 0, 1, 1]
    queue.later("24 days")
    queue.call("prune_alerts")
    assert [count(queue, table) for table, _ in left] == [0, 0, 0, 0]


def test_alerts_that_a_sink_has_not_taken_yet_are_kept(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    raise_alert(queue)
    Sink(queue).next()

    queue.later("20 days")
    queue.call("prune_alerts")

    assert count(queue, "alert_delivery") == 1


def count(queue: Queue, table: str) -> int:
    found: int = queue.value(f"SELECT count(*) FROM messages.{table}")
    return found
