"""A breaker over a fleet: it opens for all daemons, lets a probe through, and closes again."""

from __future__ import annotations

from collections.abc import Callable

from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

# One attempt of each message, and what fails is archived: so the archive tells what was tried.
BREAKER = {"min_attempts": 10, "window": "1m", "pause": "1s", "probes": 1}


def ended(queue: Queue) -> int:
    count: int = queue.value("SELECT count(*) FROM messages.message_archive")
    return count


def position(queue: Queue) -> str | None:
    row = queue.row("SELECT position FROM messages.breaker WHERE topic = 't'")
    return row and row.position


def test_it_opens_for_all_daemons_and_closes_by_a_probe(
    queue: Queue, start: Callable[..., Daemon], journal: Journal
) -> None:
    queue.policy(breaker=BREAKER)
    for name in ("a", "b"):
        start({"t": "work:fail_until_gate"}, name=name, concurrency=2, environ={"GATES": str(journal.path.parent)})

    queue.publish_many(100)
    eventually(lambda: position(queue) == "open")
    # Both had at most two more in hand; after that only one probe at a time is let through, one for each pause.
    tried = ended(queue)
    eventually(lambda: ended(queue) > tried, within_s=10)
    assert ended(queue) <= tried + 4

    (journal.path.parent / "gate").touch()
    eventually(lambda: position(queue) == "closed", within_s=10)
    eventually(lambda: queue.ids() == [], within_s=10)
    assert queue.value("SELECT count(*) FROM messages.message_archive WHERE result = 'success'") >= 80
