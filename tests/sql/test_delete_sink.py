"""messages.delete_sink: deletes a sink that no configuration names any more."""

from __future__ import annotations

from tests.sql.queue import Queue
from tests.sql.sinks import Sink, raise_alert


def test_the_sink_is_deleted_and_the_alerts_stay(queue: Queue) -> None:
    raise_alert(queue)
    Sink(queue).next()

    assert (queue.call("delete_sink", "ops"), queue.call("delete_sink", "ops")) == (True, False)

    left = "SELECT count(*) FROM messages."
    assert [queue.value(left + table) for table in ("alert_incident", "alert_delivery", "alert")] == [0, 0, 1]


def test_a_sink_that_is_still_configured_starts_as_a_new_one(queue: Queue) -> None:
    raise_alert(queue)
    Sink(queue).next()
    queue.call("delete_sink", "ops")

    assert len(Sink(queue).deliver_all()) == 1
