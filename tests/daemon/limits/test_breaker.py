"""A breaker over a fleet: it opens for all daemons, lets a probe run, and closes again."""

from __future__ import annotations

from collections.abc import Callable

from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

# One attempt of each message, and failures are archived: so the archive has all attempts.
BREAKER = {"min_attempts": 10, "window": "1h", "pause": "1h", "probes": 1}


def ended(queue: Queue) -> int:
    count: int = queue.value("SELECT count(*) FROM messages.message_archive")
    return count


def in_flight(queue: Queue) -> int:
    count: int = queue.value("SELECT count(*) FROM messages.message WHERE claim_id IS NOT NULL")
    return count


def begun_when_open(queue: Queue) -> int:
    """How many attempts were ended or claimed, in the snapshot in which the breaker is open; else 0."""
    row = queue.row("""
        SELECT b.position,
          (SELECT count(*) FROM messages.message_archive)
          + (SELECT count(*) FROM messages.message WHERE claim_id IS NOT NULL) AS begun
        FROM messages.breaker AS b WHERE b.topic = 't'
    """)
    return int(row.begun) if row and row.position == "open" else 0


def end_the_pause(queue: Queue) -> None:
    """End the pause after which a probe may run, and notify the daemons, which wait for a later time."""
    queue.conn.execute("UPDATE messages.breaker SET probe_at = clock_timestamp()")
    queue.conn.execute("SELECT pg_notify('topic_changed', 't')")


def position(queue: Queue) -> str | None:
    row = queue.row("SELECT position FROM messages.breaker WHERE topic = 't'")
    return row and row.position


def test_a_breaker_opens_for_all_daemons_and_closes_after_a_probe(
    queue: Queue, start: Callable[..., Daemon], journal: Journal
) -> None:
    queue.policy(breaker=BREAKER)
    for name in ("a", "b"):
        start({"t": "work:fail_until_gate"}, name=name, concurrency=2, environ={"GATES": str(journal.path.parent)})

    queue.publish_many(100)
    begun = eventually(lambda: begun_when_open(queue))
    eventually(lambda: in_flight(queue) == 0)
    tried = ended(queue)
    # The number that ended while it opened is not limited (a settle does not wait for another that is counting).
    # After that only a claim under way may commit: one of each daemon, of at most two messages.
    assert 10 <= tried <= begun + 4 < 100

    # The tick counts what ended while another settle was counting: otherwise it would count as a probe.
    eventually(lambda: not queue.value("SELECT count(*) FROM messages.breaker_count"))

    # After that only one probe may run per pause.
    end_the_pause(queue)
    eventually(lambda: ended(queue) > tried)
    eventually(lambda: position(queue) == "open" and in_flight(queue) == 0)
    assert ended(queue) == tried + 1

    (journal.path.parent / "gate").touch()
    end_the_pause(queue)
    eventually(lambda: position(queue) == "closed")
    eventually(lambda: queue.ids() == [])
    assert queue.value("SELECT count(*) FROM messages.message_archive WHERE result = 'success'") == 99 - tried
