"""attempts and runs: claims, and started handlers. A message that only waited in a dead worker counts no run."""

from __future__ import annotations

from collections.abc import Callable

from psycopg.types.json import Jsonb

from tests.daemon.process import Daemon, Journal, end_locks
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


def counts(queue: Queue, ids: list[int]) -> list[tuple[int, int]]:
    """Return attempts and runs of each message, live or archived."""
    return [(row.attempts, row.runs) for row in (queue.message(each) or queue.archived(each) for each in ids)]


def fetched(start: Start, queue: Queue, journal: Journal, **worker: str) -> tuple[Daemon, list[int]]:
    """Start a daemon that runs one message and has three more waiting."""
    queue.policy("job", max_attempts=3, backoff={"kind": "none"})
    daemon = start({"job": "holding:hold"}, concurrency=1, threads=1, prefetch=3, **worker)
    ids = queue.publish_many(4, "job")
    journal.entry("start", ids[0])
    eventually(lambda: all(queue.message(each).claim_id for each in ids))
    return daemon, ids


def test_messages_that_wait_in_their_worker_have_an_attempt_and_no_run(
    start: Start, queue: Queue, journal: Journal
) -> None:
    _, ids = fetched(start, queue, journal)

    assert counts(queue, ids) == [(1, 1), (1, 0), (1, 0), (1, 0)]


def test_each_message_counts_its_run_when_it_begins(start: Start, queue: Queue, journal: Journal) -> None:
    daemon, ids = fetched(start, queue, journal)

    daemon.open_gate()

    eventually(lambda: queue.ids() == [])
    assert counts(queue, ids) == [(1, 1)] * 4


def test_a_long_message_shows_its_run_while_it_runs(start: Start, queue: Queue, journal: Journal) -> None:
    queue.policy("job", max_attempts=3)
    daemon = start({"job": "holding:hold"}, concurrency=1, prefetch=1)
    short = queue.publish("job", payload=Jsonb("short"))
    journal.entry("start", short)
    long = queue.publish("job", payload=Jsonb("long"))
    eventually(lambda: queue.message(long).claim_id)
    assert counts(queue, [long]) == [(1, 0)]

    daemon.open_gate("short")

    eventually(lambda: counts(queue, [long]) == [(1, 1)])
    assert queue.message(long).claim_id is not None


def test_another_message_of_a_crashed_worker_counts_no_run(start: Start, queue: Queue, journal: Journal) -> None:
    crashed, ids = fetched(start, queue, journal)

    crashed.kill()
    end_locks(queue.conn, crashed)
    second = start({"job": "holding:hold"}, concurrency=4)
    second.open_gate()

    eventually(lambda: queue.ids() == [], within_s=60)
    assert counts(queue, ids) == [(2, 2), (2, 1), (2, 1), (2, 1)]
    assert [[each.get("run") for each in queue.archived(one).history] for one in ids] == [[1], [None], [None], [None]]


def test_a_drain_counts_a_run_only_for_the_message_it_stopped(start: Start, queue: Queue, journal: Journal) -> None:
    daemon, ids = fetched(start, queue, journal, shutdown_timeout="0.2s")

    assert daemon.stop() == 0

    assert counts(queue, ids) == [(0, 1), (0, 0), (0, 0), (0, 0)]
