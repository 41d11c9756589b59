"""Measures the cost of an idle daemon, and how long a daemon takes to start.

The cost is compared with that of the smallest program that receives notifications.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench import program, usage
from bench.figure import Figure, Report, Target
from bench.postgres import Database, Postgres
from bench.usage import Machine

SETTLE_S = 5.0
STARTS = 10
ENDED = "SELECT count(*) FROM messages.message_archive"
STARTED = "SELECT extract(epoch FROM a.archived_at - %s)::float8 FROM messages.message_archive AS a"


def measure(postgres: Postgres, machine: Machine, rounds: int, seconds: int) -> Report:
    """Measure an idle daemon and a bare listener at the same time.

    Before that, start daemons that have one message to process.
    """
    machine.wait_until_quiet()
    starts = [_start_s(postgres) for _ in range(STARTS)]
    used: dict[str, list[float]] = defaultdict(list)
    with (
        postgres.database("idle") as database,
        tempfile.TemporaryDirectory() as folder,
        program.daemon(database) as daemon,
        program.bare_listener(database, "bare", Path(folder) / "received") as bare,
    ):
        program.wait_until_asleep(database)
        time.sleep(SETTLE_S)
        watched = {
            "daemon": [daemon.pid],
            "bare": [bare.pid],
            "server": _backends(database) if postgres.is_private else [],
        }
        for _ in range(rounds):
            machine.wait_until_quiet()
            before = {name: usage.cpu_s(*pids) for name, pids in watched.items()}
            time.sleep(seconds)
            for name, pids in watched.items():
                used[name].append((usage.cpu_s(*pids) - before[name]) / seconds * 100)
            used["daemon's memory"].append(usage.rss_mib(daemon.pid))
            used["bare memory"].append(usage.rss_mib(bare.pid))
    return _report(used, starts, seconds, is_private=postgres.is_private)


def _start_s(postgres: Postgres) -> float:
    """Return the seconds from the start of a daemon's process until it has processed a message that waits for it."""
    with postgres.database("start") as database, database.connect() as conn:
        conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('noop', '1')")
        began = conn.execute("SELECT clock_timestamp()").fetchone()
        with program.daemon(database):
            program.wait_until(lambda: conn.execute(ENDED).fetchone() == (1,), program.START_WITHIN_S, "the message")
        (took,) = conn.execute(STARTED, began).fetchone() or (0.0,)
    return float(took)


def _backends(database: Database) -> list[int]:
    """Return the server's processes that serve the daemon."""
    with database.connect() as conn:
        rows = conn.execute(
            "SELECT a.pid FROM pg_stat_activity AS a WHERE a.application_name LIKE 'pgrouse %'"
        ).fetchall()
    return [row[0] for row in rows]


def _report(used: dict[str, list[float]], starts: list[float], seconds: int, *, is_private: bool) -> Report:
    bare_cpu = Figure("bare listener, CPU", "% of a core", used["bare"])
    bare_memory = Figure("bare listener, memory", "MiB", used["bare memory"])
    return Report(
        "idle",
        f"Windows of {seconds} s; the bare listener is an asyncio program with one psycopg connection that listens.",
        [
            bare_cpu,
            Figure("daemon, CPU", "% of a core", used["daemon"], target=Target(1.0)),
            *([Figure("its server processes, CPU", "% of a core", used["server"])] if is_private else []),
            bare_memory,
            Figure("start of the daemon's process to its first message ended", "s", starts, target=Target(0.5)),
            Figure("daemon, memory", "MiB", used["daemon's memory"], bare_memory, Target(80, of_value=True)),
        ],
    )
