"""messages.create_delivery: writes the next notification of a sink; test_claim_delivery.py shows when and what."""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb

from tests.sql.queue import Queue
from tests.sql.sinks import RULES, Sink, raise_alert


def write(queue: Queue, **rules: object) -> float | None:
    wait_s: float | None = queue.value("SELECT messages.create_delivery('ops', %s)", [Jsonb({**RULES, **rules})])
    return wait_s


def test_without_an_alert_the_time_of_the_next_is_unknown(queue: Queue) -> None:
    Sink(queue).next()

    assert write(queue) is None


def test_it_returns_how_long_until_the_next_is_due(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    sink = Sink(queue, group_wait=10)
    raise_alert(queue)
    sink.next()

    queue.later("4 s")

    assert write(queue) == pytest.approx(6)


def test_a_few_groups_are_one_notification_each_and_many_are_one(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    sink = Sink(queue, group_wait=10)
    for n in range(6):
        raise_alert(queue, error_fingerprint=str(n))
    sink.next()
    queue.later("10 s")

    assert [write(queue, digest_over=6) for _ in range(6)] == [0] * 6
    assert write(queue) is None
    assert queue.value("SELECT array_agg((message ->> 'group_count')::int) FROM messages.alert_delivery") == [1] * 6


def test_it_records_the_alerts_of_the_notification(queue: Queue) -> None:
    first, last = raise_alert(queue), raise_alert(queue)

    Sink(queue, topics=["t"]).next()

    kept = queue.row("SELECT first_alert_id, last_alert_id, rules FROM messages.alert_delivery")
    assert kept == (first, last, {"group_by": RULES["group_by"], "topics": ["t"]})
