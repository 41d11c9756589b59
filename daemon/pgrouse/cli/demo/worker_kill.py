"""Kills a worker with -9 while it works, and reports what happens to its messages."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from pgrouse.cli.demo.progress_watch import ProgressWatch
from pgrouse.cli.demo.worker import DemoWorker

# Handlers of these topics take a second, and each daemon runs four at once: with eight messages of each, both daemons
# have some in flight.
SLOW = ("invoice.render", "label.print")
OF_EACH = 8


@dataclass(frozen=True)
class WorkerKill:
    """One killed worker.

    Attributes:
        name: the name of the worker.
        held: the messages that it had locked when it was gone, by topic.
        ids: their ids.
        freed_after_s: how long after the kill the last of them was free again, or archived.
    """

    name: str
    held: dict[str, int]
    ids: list[int]
    freed_after_s: float


def kill(watch: ProgressWatch, victim: DemoWorker) -> WorkerKill:
    """Kill a worker that has slow messages in flight, start a successor, and wait for the locks to expire."""
    _publish(watch)
    watch.until(lambda: _is_working(watch, victim), f"waiting until {victim.name} is in the middle of something")
    watch.workers.kill(victim)
    died_at = time.monotonic()
    # Statements that the worker had already sent may still commit; no worker will settle the messages that are locked
    # after that.
    watch.until(lambda: not _backends(watch, victim), "waiting until its connections are gone")
    locked = _locked(watch, victim)
    held = Counter(locked.values())
    successor = watch.workers.start()
    watch.screen.tell("kill", f"{victim.name} killed with -9, holding {_enumerate(held)}; {successor.name} takes over")
    watch.until(lambda: not _locked(watch, victim), f"waiting for the locks of {victim.name} to expire")
    worker_kill = WorkerKill(victim.name, dict(held), list(locked), time.monotonic() - died_at)
    _tell_what_became(watch, worker_kill)
    return worker_kill


def _tell_what_became(watch: ProgressWatch, worker_kill: WorkerKill) -> None:
    rows = watch.conn.execute(
        "SELECT a.topic, count(*) FROM messages.message_archive AS a "
        "WHERE a.id = ANY (%s) AND a.result = 'lock_expired' GROUP BY 1",
        [worker_kill.ids],
    )
    expired = Counter(dict(rows.fetchall()))
    back = Counter(worker_kill.held) - expired
    watch.screen.tell(
        "recover",
        f"{worker_kill.freed_after_s:.1f} s later its locks had expired: "
        f"{_enumerate(back)} came back to be tried again,"
        f" {_enumerate(expired)} (one attempt, no more) archived as lock_expired",
    )


def _publish(watch: ProgressWatch) -> None:
    with watch.conn.transaction():
        for n in range(OF_EACH):
            for topic in SLOW:
                watch.published.publish(watch.conn, topic, {"order": n})


def _is_working(watch: ProgressWatch, victim: DemoWorker) -> bool:
    if {*SLOW} <= {*_locked(watch, victim).values()}:
        return True
    if not any(watch.counts.get((topic, None)) for topic in SLOW):  # the other worker has finished all of them already
        _publish(watch)
        watch.count()
    return False


def _locked(watch: ProgressWatch, worker: DemoWorker) -> dict[int, str]:
    """Return the messages that a worker has locked: id and topic."""
    rows = watch.conn.execute(
        "SELECT m.id, m.topic FROM messages.message AS m "
        "WHERE m.claim_id IS NOT NULL AND starts_with(m.locked_by, %s) ORDER BY m.id",
        [f"{worker.name}:"],
    )
    return dict(rows.fetchall())


def _backends(watch: ProgressWatch, worker: DemoWorker) -> int:
    row = watch.conn.execute(
        "SELECT count(*) FROM pg_stat_activity AS s "
        "WHERE s.datname = current_database() AND s.application_name LIKE %s",
        [f"pgrouse % {worker.name}:%"],
    ).fetchone()
    return row[0] if row else 0


def _enumerate(counts: Counter[str]) -> str:
    *first, last = [f"{count} {topic}" for topic, count in sorted(counts.items())] or ["nothing"]
    return f"{', '.join(first)} and {last}" if first else last
