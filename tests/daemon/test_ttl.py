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


def test_a_tick_expires_messages_of_topics_without_a_handler(start: Start, queue: Queue) -> None:
    queue.policy("unknown", ttl="0.3 s")
    start({"job": "work:echo"})

    published = queue.publish("unknown")

    eventually(lambda: queue.archived(published) is not None)
    assert (queue.archived(published).result, queue.archived(published).attempts) == ("expired", 0)


def test_a_running_message_may_end_long_after_its_ttl(start: Start, queue: Queue, journal: Journal) -> None:
    queue.policy("job", ttl="1 hour")
    daemon = start({"job": "holding:hold"})
    published = queue.publish("job")
    journal.entry("start", published)
    # An hour later, without waiting for it.
    queue.conn.execute("UPDATE messages.message SET expires_at = expires_at - interval '1 hour'")
    assert queue.value("SELECT expires_at < clock_timestamp() FROM messages.message")

    queue.rows("SELECT * FROM messages.tick('hand')")
    daemon.open_gate()

    eventually(lambda: queue.archived(published) is not None)
    assert queue.archived(published).result == "success"
