"""A message's own timeout and backoff, as daemons obey them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


@pytest.mark.parametrize("handler", ["holding:hold", "holding:hold_in_thread", "process"])
def test_the_own_timeout_ends_an_attempt_that_the_topic_would_let_run(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    in_process = {"handler": "hostile:hang", "isolation": "process"}
    queue.policy("job", timeout="1 hour")
    start({"job": in_process if handler == "process" else handler})

    published = queue.publish("job", timeout="0.5 s")

    archived = eventually(lambda: queue.archived(published))
    assert archived.result == "lock_expired"
    assert "timeout of 0.5 s" in archived.error


def test_a_longer_one_of_its_own_lets_it_run_longer_than_the_topic_says(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("job", timeout="0.5 s")
    daemon = start({"job": "holding:hold"})
    short = queue.publish("job", payload=Jsonb("never"))
    long = queue.publish("job", timeout="1 hour")

    assert eventually(lambda: queue.archived(short)).result == "lock_expired"
    assert queue.archived(long) is None
    daemon.open_gate()

    assert eventually(lambda: queue.archived(long)).result == "success"


@pytest.mark.long
@pytest.mark.parametrize("handler", ["hold", "hold_in_process"])
def test_a_batch_runs_for_as_long_as_the_shortest_timeout_of_its_messages(
    start: Start, queue: Queue, handler: str
) -> None:
    isolation: dict[str, Any] = {"isolation": "process"} if handler.endswith("_process") else {}
    queue.policy("job", timeout="1 hour")
    with queue.conn.transaction():
        ids = [queue.publish("job", payload=Jsonb(7)), queue.publish("job", payload=Jsonb(8), timeout="0.5 s")]

    start({"job": {"handler": f"batches:{handler}", "batch_size": 2, "batch_timeout": "30s", **isolation}})

    for each in ids:
        ended = eventually(lambda each=each: queue.archived(each))
        assert ended.result == "lock_expired"
    assert "timeout of 0.5 s" in queue.archived(ids[1]).error


def test_the_own_backoff_says_when_the_next_attempt_begins(start: Start, queue: Queue, journal: Journal) -> None:
    queue.policy("job", max_attempts=2, backoff={"kind": "constant", "base": "1 hour"})
    start({"job": "work:act"})

    own = queue.publish("job", payload=Jsonb({"do": "raise"}), backoff={"kind": "none"})
    plain = queue.publish("job", payload=Jsonb({"do": "raise"}))

    assert eventually(lambda: queue.archived(own)).attempts == 2
    assert eventually(lambda: queue.message(plain).history)[0]["outcome"] == "failed"
    assert queue.message(plain).attempts == 1


def test_a_handler_publishes_with_them(start: Start, queue: Queue) -> None:
    start({"job": "work:publish_own"})
    queue.publish("job")

    (row,) = eventually(lambda: queue.rows("SELECT * FROM messages.message WHERE topic = 'next'"))

    assert (row.timeout.total_seconds(), row.retention.days, row.backoff) == (90, 90, {"kind": "linear"})
