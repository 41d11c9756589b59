"""messages.delete_sink: forgets a sink that no configuration names any more."""

from __future__ import annotations

from tests.sql.queue import Queue
from tests.sql.sinks import Sink, raise_alert


def test_all_of_it_is_gone_and_the_alerts_stay(queue: Queue) -> None:
    raise_alert(queue)
    Sink(queue).next()

    assert (queue.call("delete_sink", "ops"), queue.call("delete_sink", "ops")) == (True, False)

    left = "SELECT count(*) FROM messages."
    assert [queue.value(left + table) for table in ("alert_incident", "alert_delivery", "alert")] == [0, 0, 1]


def test_one_that_is_still_configured_comes_back_as_a_new_one(queue: Queue) -> None:
    raise_alert(queue)
    Sink(queue).next()
    queue.call("delete_sink", "ops")

    assert len(Sink(queue).deliver_all()) == 1
