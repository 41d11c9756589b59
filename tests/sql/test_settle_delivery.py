"""messages.settle_delivery: the result of a notification that was sent to a sink."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sql.queue import Queue
from tests.sql.sinks import Sink, raise_alert


@pytest.fixture
def sink(queue: Queue) -> Sink:
    queue.stop_clock("2026-01-01")
    return Sink(queue)


def test_a_delivered_notification_is_marked_and_not_returned_again(sink: Sink, queue: Queue) -> None:
    alert, other = raise_alert(queue), raise_alert(queue, "other")
    got = sink.next()

    assert sink.settle(got) is True

    delivered = {row.id for row in queue.rows("SELECT id FROM messages.alert WHERE delivered_at IS NOT NULL")}
    assert delivered == {alert}
    assert sink.next().message["groups"][0]["topic"] == "other"
    assert other not in delivered


def test_only_the_alerts_of_the_notification_count_as_delivered(queue: Queue) -> None:
    raise_alert(queue, "mine.a")
    unwanted = raise_alert(queue, "theirs")
    raise_alert(queue, "mine.b")

    Sink(queue, group_by=[], topics=["mine.*"]).deliver_all()

    assert queue.value("SELECT array_agg(id) FROM messages.alert WHERE delivered_at IS NULL") == [unwanted]


def test_a_failed_notification_is_returned_again_at_its_time_and_delays_those_behind_it(
    sink: Sink, queue: Queue
) -> None:
    raise_alert(queue)
    got = sink.next()
    sink.settle(got, "no answer", retry_in=timedelta(seconds=30))
    raise_alert(queue, "behind")

    assert (sink.next().id, sink.next().wait_s) == (None, 30)
    queue.later("30 s")
    again = sink.next()

    assert (again.id, again.attempt) == (got.id, 2)


def test_an_abandoned_notification_delays_no_other(sink: Sink, queue: Queue) -> None:
    raise_alert(queue)
    sink.settle(sink.next(), "refused", abandon=True)
    raise_alert(queue, "behind")

    assert [body["groups"][0]["topic"] for body in sink.deliver_all()] == ["behind"]
    assert queue.value("SELECT count(*) FROM messages.alert_delivery WHERE abandoned_at IS NOT NULL") == 1


def test_the_sink_has_since_when_it_fails_until_it_works_again(sink: Sink, queue: Queue) -> None:
    state = "SELECT failures, failing_since IS NOT NULL AS failing, last_error, delivered_at FROM messages.alert_sink"
    raise_alert(queue)
    for _ in range(2):
        sink.settle(sink.next(), "no answer", retry_in=timedelta(0))
    assert queue.row(state) == (2, True, "no answer", None)

    sink.settle(sink.next())

    after = queue.row(state)
    assert (after.failures, after.failing) == (0, False)
    assert after.delivered_at is not None


def test_a_settled_notification_is_not_settled_twice(sink: Sink, queue: Queue) -> None:
    raise_alert(queue)
    got = sink.next()
    sink.settle(got)

    assert sink.settle(got, "late") is False


def test_only_the_current_holder_of_the_sink_can_settle(sink: Sink, queue: Queue) -> None:
    raise_alert(queue)
    got = sink.next()
    queue.conn.execute("UPDATE messages.alert_sink SET fence = fence + 1")

    assert sink.settle(got) is False
    assert queue.value("SELECT count(delivered_at) FROM messages.alert_delivery") == 0
