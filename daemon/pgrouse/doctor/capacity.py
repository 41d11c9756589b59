"""Checks whether the server has enough connections for all workers.

Each is assumed to open as many as its configuration allows.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgrouse.client.call import run
from pgrouse.client.queries.worker import count_connections
from pgrouse.config.config import Config
from pgrouse.doctor.finding import Finding, fail, ok, warn
from pgrouse.doctor.target import DoctorTarget

# Connections in addition to those that claim: listener, heartbeat and two for maintenance.
LOOPS = 4
# Coroutine handlers and handlers in threads use two pools.
POOLS = 2


def check(target: DoctorTarget) -> Iterator[Finding]:
    """Report how many connections the workers need, and how many there are."""
    with target.reading() as conn:
        most, workers = run(conn, count_connections())
    processes = max(workers, target.settings.worker.processes)
    least, at_most = (processes * each for each in _per_process(target.settings))
    who = "a worker like this one takes" if processes == 1 else f"{processes} workers like this one take"
    takes = f"{who} {least} connections, {at_most} at most; the server allows {most}"
    fix = (
        "lower worker.claim_connections, worker.processes or database.pool_size, put a pooler in between, "
        "or raise max_connections"
    )
    if least > most:
        yield fail("connections_needed", takes, fix)
    elif at_most > most:
        yield warn("connections_needed", takes, fix)
    else:
        yield ok("connections_needed", takes)


def _per_process(settings: Config) -> tuple[int, int]:
    """Return how many connections one process keeps open, and how many it opens at most."""
    steady = settings.worker.claim_connections + LOOPS
    return steady, steady + POOLS * settings.database.pool_size
