"""Handlers of patterns of topics: a daemon claims from topics that appear after its start, and is woken by them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.process import AT_ONCE_S, Daemon, Journal, until_armed
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


def test_the_first_message_of_a_new_topic_wakes_the_daemon_at_once(start: Start, queue: Queue) -> None:
    daemon = start({"orders.*": "work:echo"})
    until_armed(queue.conn, daemon)

    new = queue.publish("orders.new")
    other = queue.publish("orders.new.deeper")

    eventually(lambda: queue.archived(new), within_s=AT_ONCE_S)
    assert queue.message(other).attempts == 0
    assert queue.row("SELECT * FROM messages.worker").topics == ["orders.*"]


def test_the_most_specific_handler_of_the_worker_gets_a_message(start: Start, queue: Queue, journal: Journal) -> None:
    start(
        {
            "orders.created": "work:echo",
            "orders.*": {"handler": "batches:count", "batch_size": 10},
            "orders.**": {"handler": "holding:nap", "concurrency": 1},
        }
    )

    exact, level, deep = (
        queue.publish(each, payload=Jsonb(0)) for each in ("orders.created", "orders.paid", "orders.eu.paid")
    )

    for each in (exact, level, deep):
        eventually(lambda each=each: queue.archived(each))  # type: ignore[misc]
    assert [queue.archived(each).result for each in (exact, level, deep)] == ["success"] * 3
    assert [each["id"] for each in journal.entries("start") if "id" in each] == [exact, deep]


def test_a_full_exact_handler_does_not_leave_its_messages_to_a_pattern(
    start: Start, queue: Queue, journal: Journal
) -> None:
    start({"orders.slow": {"handler": "holding:hold", "concurrency": 1}, "orders.*": "work:echo"})
    held = [queue.publish("orders.slow") for _ in range(3)]
    journal.entry("start", held[0])

    others = [queue.publish("orders.fast") for _ in range(20)]

    eventually(lambda: all(queue.archived(each) for each in others))
    assert [queue.message(each).attempts for each in held] == [1, 0, 0]
    assert not [each for each in journal.entries("start") if each.get("id") in held[1:]]


@pytest.mark.long
def test_measures_name_the_topic_and_not_the_pattern(start: Start, queue: Queue) -> None:
    start({"orders.*": "work:echo"})
    published = [queue.publish(f"orders.{nth}") for nth in range(3)]

    eventually(lambda: all(queue.archived(each) for each in published))
    measured = "SELECT DISTINCT topic FROM messages.measure WHERE success > 0 ORDER BY topic"
    eventually(lambda: len(queue.rows(measured)) == 3)
    runs = queue.rows("SELECT topic FROM messages.latency() WHERE runs > 0 ORDER BY topic")

    assert (
        [row.topic for row in queue.rows(measured)]
        == [row.topic for row in runs]
        == ["orders.0", "orders.1", "orders.2"]
    )
