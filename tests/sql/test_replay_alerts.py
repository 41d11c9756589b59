"""messages.replay_alerts: sends notifications to sinks again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from psycopg import errors

from tests.sql.queue import Listener, Queue
from tests.sql.sinks import Sink, raise_alert


def test_delivered_notifications_are_sent_again_in_their_order_with_new_ids(queue: Queue) -> None:
    sink = Sink(queue)
    raise_alert(queue, "a")
    raise_alert(queue, "b")
    sink.deliver_all()
    ids = [str(row.id) for row in queue.rows("SELECT id FROM messages.alert_delivery ORDER BY seq")]

    assert queue.call("replay_alerts") == 2

    again = sink.deliver_all()
    assert [body["groups"][0]["topic"] for body in again] == ["a", "b"]
    assert [body["replay_of"] for body in again] == ids


def test_abandoned_notifications_are_sent_again_and_unsettled_ones_are_not(queue: Queue) -> None:
    sink = Sink(queue)
    raise_alert(queue, "aside")
    sink.settle(sink.next(), "refused", abandon=True)
    raise_alert(queue, "waiting")
    sink.next()

    assert queue.call("replay_alerts", "ops") == 1
    assert [body["groups"][0]["topic"] for body in sink.deliver_all()] == ["waiting", "aside"]


def test_a_replayed_notification_is_replayed_only_by_its_id(queue: Queue) -> None:
    sink = Sink(queue)
    raise_alert(queue)
    sink.deliver_all()
    queue.call("replay_alerts")
    sink.deliver_all()

    assert queue.call("replay_alerts") == 1
    replayed = queue.value("SELECT id FROM messages.alert_delivery WHERE replay_of IS NOT NULL ORDER BY seq LIMIT 1")
    assert queue.call("replay_alerts", None, timedelta(hours=1), replayed) == 1


def test_only_notifications_of_the_range_and_the_sink_are_replayed(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    raise_alert(queue)
    for name in ("a", "b"):
        Sink(queue, name).deliver_all()
    queue.later("2 hours")

    assert queue.call("replay_alerts") == 0
    assert queue.call("replay_alerts", "a", timedelta(hours=3)) == 1


def test_it_notifies_the_deliverers(queue: Queue, listen: Callable[..., Listener]) -> None:
    raise_alert(queue)
    Sink(queue).deliver_all()
    listener = listen("alert")

    queue.call("replay_alerts")

    assert listener.received() == ["replay"]


def test_an_invalid_range_is_refused(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue):
        queue.call("replay_alerts", None, timedelta(0))
