"""What the wake-up costs those who publish, against the same table without its trigger."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

from bench import pgbench, program
from bench.figure import Figure, Report, Target
from bench.ground import Database, Ground
from bench.usage import Machine

BARE = "the table without the trigger"
# Each way to publish and what makes it so.
WAYS = {
    "no daemon asleep": "SELECT messages.arm('bench', NULL, '1 hour'), messages.disarm('bench')",
    "a daemon asleep": "SELECT messages.arm('bench', NULL, '1 day')",
    "notify = 'always'": "UPDATE messages.topic SET notify = 'always' WHERE topic = '*'",
}


def measure(ground: Ground, machine: Machine, rounds: int, seconds: int, clients: int) -> Report:
    """Publish into each table in turn, for some seconds each."""
    rates: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as ends:
        folder = ends.enter_context(tempfile.TemporaryDirectory())
        tables = {BARE: ends.enter_context(ground.database("bare"))}
        with tables[BARE].connect() as conn:
            conn.execute("DROP TRIGGER new_message ON messages.message")
        for number, (way, statement) in enumerate(WAYS.items()):
            tables[way] = ends.enter_context(ground.database(f"way_{number}"))
            _make(tables[way], statement)
            # Somebody has to listen, or PostgreSQL has nothing to do at a NOTIFY.
            ends.enter_context(program.bare_listener(tables[way], "new_message", Path(folder) / f"heard_{number}"))
        for number in range(rounds):
            # There and back, so that what drifts in the machine drifts for all alike.
            for way in list(tables) if number % 2 else reversed(tables):
                rates[way].append(_rate(ground, machine, tables[way], seconds, clients))
    return _report(rates, seconds, clients)


def _make(database: Database, statement: str) -> None:
    with database.connect() as conn:
        conn.execute(statement.encode())


def _rate(ground: Ground, machine: Machine, database: Database, seconds: int, clients: int) -> float:
    """Return the publishes per second into an empty table."""
    with database.connect() as conn:
        conn.execute("TRUNCATE messages.message")
    ground.checkpoint()
    machine.wait_until_quiet()
    return pgbench.run_for(ground, database, "publish.sql", clients=clients, seconds=seconds)


def _report(rates: dict[str, list[float]], seconds: int, clients: int) -> Report:
    bare = Figure(BARE, "publishes/s", rates[BARE])
    targets = {"no daemon asleep": Target(0.95, at_least=True)}
    return Report(
        "publish",
        f"{clients} connections, one INSERT of one message per transaction, runs of {seconds} s in turn.",
        [bare, *(Figure(way, "publishes/s", rates[way], bare, targets.get(way)) for way in WAYS)],
    )
