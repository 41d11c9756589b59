"""messages.close_incidents: ends what is over for a sink."""

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


def test_a_group_in_which_nothing_died_for_the_time_between_two_messages_is_over(queue: Queue) -> None:
    sink = Sink(queue)
    raise_alert(queue)
    sink.deliver_all()
    queue.later("9 minutes")
    assert close(queue) == 0

    queue.later("2 minutes")

    assert close(queue) == 1
    assert sink.incident().state == "over"


def test_what_is_still_to_be_told_is_not_over(queue: Queue) -> None:
    sink = Sink(queue)
    raise_alert(queue)
    sink.next()
    sink.settle(sink.next(), "no answer", retry_in="1 hour")
    raise_alert(queue)
    sink.next()
    queue.later("1 hour")

    assert close(queue) == 0


def test_a_condition_is_over_when_its_end_was_told_and_no_sooner(queue: Queue) -> None:
    sink = Sink(queue)
    raise_alert(queue, kind="backlog", result="begun")
    sink.deliver_all()
    queue.later("1 day")

    assert close(queue) == 0
