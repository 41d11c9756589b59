"""messages.close_incidents: ends the incidents of a sink that are over."""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb

from tests.sql.queue import Queue
from tests.sql.sinks import RULES, Sink, raise_alert


@pytest.fixture(autouse=True)
def _stopped(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")


def close(queue: Queue, **rules: object) -> int:
    ended: int = queue.value("SELECT messages.close_incidents('ops', %s)", [Jsonb({**RULES, **rules})])
    return ended


def test_a_group_without_alerts_for_the_interval_is_closed(queue: Queue) -> None:
    sink = Sink(queue)
    raise_alert(queue)
    sink.deliver_all()
    queue.later("9 minutes")
    assert close(queue) == 0

    queue.later("2 minutes")

    assert close(queue) == 1
    assert sink.incident().state == "over"


def test_an_incident_with_an_unsent_notification_is_not_closed(queue: Queue) -> None:
    sink = Sink(queue)
    raise_alert(queue)
    sink.next()
    sink.settle(sink.next(), "no answer", retry_in="1 hour")
    raise_alert(queue)
    sink.next()
    queue.later("1 hour")

    assert close(queue) == 0


def test_a_condition_is_closed_once_its_end_was_sent(queue: Queue) -> None:
    sink = Sink(queue)
    raise_alert(queue, kind="backlog", result="begun")
    sink.deliver_all()
    queue.later("1 day")

    assert close(queue) == 0
