"""Whether the server has connections enough for the workers that there are, should each open all that its configuration allows."""

from __future__ import annotations

from collections.abc import Iterator

from pgrouse.config.config import Config
from pgrouse.doctor.finding import Finding, fail, ok, warn
from pgrouse.doctor.target import Subject

# Besides the lanes: listener, prober, ticker and heartbeat.
LOOPS = 4
# Handlers that are coroutines and handlers in threads draw from two pools.
POOLS = 2
ROOM = """
  SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true), '0')::int AS most,
         (SELECT count(*)::int FROM messages.worker AS w WHERE w.kind = 'daemon' AND w.seen_at > clock_timestamp() - interval '1 minute') AS workers
"""


def look(subject: Subject) -> Iterator[Finding]:
    """Say how many connections the workers take, and how many there are."""
    with subject.reading() as conn:
        most, workers = conn.execute(ROOM).fetchone() or (0, 0)
    processes = max(workers, subject.settings.worker.processes)
    least, at_most = (processes * each for each in _of_one(subject.settings))
    who = "a worker like this one takes" if processes == 1 else f"{processes} workers like this one take"
    takes = f"{who} {least} connections, {at_most} at most; the server allows {most}"
    mend = (
        "lower worker.lanes, worker.processes or database.pool_size, put a pooler in between, or raise max_connections"
    )
    if least > most:
        yield fail("connections_needed", takes, mend)
    elif at_most > most:
        yield warn("connections_needed", takes, mend)
    else:
        yield ok("connections_needed", takes)


def _of_one(settings: Config) -> tuple[int, int]:
    """Return how many connections one process keeps open, and how many it opens at most."""
    steady = settings.worker.lanes + LOOPS
    return steady, steady + POOLS * settings.database.pool_size
