"""Keys that are debounced or throttled, in real time: a daemon that sleeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


def send(queue: Queue, payload: int, **named: Any) -> Any:
    return queue.send(payload, "job", key="k", **named)


def test_publishes_in_a_row_are_one_run_of_the_last_payload_when_they_have_stopped(
    start: Start, queue: Queue, journal: Journal
) -> None:
    start({"job": "work:echo"})
    # One transaction: on a slow machine the time must not pass between two of them.
    with queue.conn.transaction():
        sent = {send(queue, n, debounce="1 s", max_delay="1 hour").id for n in range(20)}
        due = queue.message(min(sent)).available_at

    (message,) = sent
    ended = eventually(lambda: queue.archived(message))

    assert (ended.output, ended.available_at) == (19, due)
    assert ended.locked_at >= due
    assert [entry["id"] for entry in journal.entries("start")] == [message]
