"""ttl: a message that was not processed in time ends as expired, whether daemons are busy, stopped or dead."""

from __future__ import annotations

from collections.abc import Callable

from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


def test_a_message_that_waits_longer_than_its_ttl_expires_and_never_runs(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("job", max_concurrency=1)
    daemon = start({"job": "holding:hold"})
    running = queue.publish("job")
    journal.entry("start", running)

    queue.policy("job", ttl="0.5 s")
    late = queue.publish("job")

    eventually(lambda: queue.archived(late) is not None)
    assert queue.archived(late).result == "expired"
    daemon.open_gate()
    eventually(lambda: queue.archived(running) is not None)
    assert queue.archived(running).result == "success"
    assert [e["id"] for e in journal.entries("start")] == [running]
