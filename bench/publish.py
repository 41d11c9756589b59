"""Measures what triggers, a running daemon and the Python package cost publishers.

Each is compared with the same without it.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bench import pgbench, program, publish_python, usage
from bench.figure import Figure, Report, Target
from bench.postgres import Database, Postgres
from bench.usage import Machine

BARE = "the table without any trigger"
SILENT = "the table without the trigger that notifies"
# The triggers that a table for comparison lacks.
WITHOUT = {BARE: "USER", SILENT: "new_message"}
AWAKE = "no daemon asleep"
KEYED = "no daemon asleep, each with a key"
DEBOUNCED = "the same, debounced"
AGAIN = "debounced, one of 1,000 keys that wait"
ALONE = "one connection, no daemon"
BESIDE = "one connection, while a daemon runs"
# Each way to publish, its setup, and its script.
WAYS = {
    AWAKE: ("SELECT messages.arm('bench', NULL, '1 ms')", "publish.sql"),
    "a daemon slept a moment ago": (
        "SELECT messages.arm('bench', NULL, '1 hour'), messages.disarm('bench')",
        "publish.sql",
    ),
    "a daemon asleep": ("SELECT messages.arm('bench', NULL, '2 hours')", "publish.sql"),
    "notify = 'always'": ("UPDATE messages.topic SET notify = 'always' WHERE topic = '*'", "publish.sql"),
    KEYED: ("SELECT messages.arm('bench', NULL, '1 ms')", "publish_key.sql"),
    DEBOUNCED: ("SELECT messages.arm('bench', NULL, '1 ms')", "publish_debounce.sql"),
    AGAIN: ("SELECT messages.arm('bench', NULL, '1 ms')", "publish_debounce_again.sql"),
}


@dataclass(frozen=True)
class Run:
    """The results of some seconds of publishing.

    Attributes:
        rate: publishes per second.
        cpu_us: CPU of server and publishers together, per publish, in microseconds; NaN when the server is on another
            machine.
        server_cpu_us: CPU of the server alone.
    """

    rate: float
    cpu_us: float
    server_cpu_us: float


def measure(postgres: Postgres, machine: Machine, rounds: int, seconds: int, clients: int) -> Report:
    """Publish into each table in turn, for some seconds each."""
    runs: dict[str, list[Run]] = defaultdict(list)
    with ExitStack() as ends:
        folder = ends.enter_context(tempfile.TemporaryDirectory())
        tables = {name: ends.enter_context(postgres.database(f"without_{which}")) for name, which in WITHOUT.items()}
        for name, which in WITHOUT.items():
            _make(tables[name], f"ALTER TABLE messages.message DISABLE TRIGGER {which}")
        for number, (way, (statement, _)) in enumerate(WAYS.items()):
            tables[way] = ends.enter_context(postgres.database(f"way_{number}"))
            _make(tables[way], statement)
            # A session must listen; otherwise a NOTIFY costs PostgreSQL nothing.
            ends.enter_context(program.bare_listener(tables[way], "new_message", Path(folder) / f"received_{number}"))
        quiet = ends.enter_context(postgres.database("one_publisher"))
        for number in range(rounds):
            # Go forward and backward, so that a drift of the machine affects all in the same way.
            for way in list(tables) if number % 2 else reversed(tables):
                script = WAYS[way][1] if way in WAYS else "publish.sql"
                runs[way].append(run(postgres, machine, tables[way], script, seconds, clients))
            _run_one(postgres, machine, quiet, seconds, runs)
        from_python = publish_python.measure(postgres, machine, rounds)
    return _report(runs, from_python, seconds, clients, postgres.is_private)


def _make(database: Database, statement: str) -> None:
    with database.connect() as conn:
        conn.execute(statement.encode())


def _run_one(
    postgres: Postgres, machine: Machine, template: Database, seconds: int, runs: dict[str, list[Run]]
) -> None:
    """Publish over one connection, without a daemon and with one that processes the messages and then sleeps."""
    with postgres.database("beside_a_daemon", template) as copy:
        runs[ALONE].append(run(postgres, machine, copy, "publish.sql", seconds, clients=1))
    runs[BESIDE].append(run_beside(postgres, machine, template, seconds))


def run_beside(postgres: Postgres, machine: Machine, template: Database, seconds: int) -> Run:
    """Publish over one connection while a daemon runs, which is asleep at the start."""
    with postgres.database("beside_a_daemon", template) as copy, program.daemon(copy):
        program.wait_until_registered(copy)
        program.wait_until_asleep(copy)
        return run(postgres, machine, copy, "publish.sql", seconds, clients=1)


def run(postgres: Postgres, machine: Machine, database: Database, script: str, seconds: int, clients: int) -> Run:
    """Publish into an empty table."""
    with database.connect() as conn:
        conn.execute("TRUNCATE messages.message")
    postgres.checkpoint()
    machine.wait_until_quiet()
    server, publishers = postgres.cpu_s(), usage.children_cpu_s()
    rate, publishes = pgbench.run_for(postgres, database, script, clients=clients, seconds=seconds)
    server, publishers = postgres.cpu_s() - server, usage.children_cpu_s() - publishers
    return Run(rate, (server + publishers) / publishes * 1e6, server / publishes * 1e6)


def _report(
    runs: dict[str, list[Run]], from_python: list[Figure], seconds: int, clients: int, is_private: bool
) -> Report:
    bare, silent = (Figure(name, "publishes/s", [run.rate for run in runs[name]]) for name in WITHOUT)
    awake = Figure(AWAKE, "publishes/s", [run.rate for run in runs[AWAKE]], silent, Target(0.95, at_least=True))
    figures = [bare, silent, awake, replace(awake, limit=bare)]
    figures += [
        Figure(way, "publishes/s", [run.rate for run in runs[way]], bare)
        for way in WAYS
        if way not in {AWAKE, KEYED, DEBOUNCED, AGAIN}
    ]
    keyed = Figure(KEYED, "publishes/s", [run.rate for run in runs[KEYED]], awake, Target(0.5, at_least=True))
    figures += [
        keyed,
        *(Figure(way, "publishes/s", [run.rate for run in runs[way]], keyed) for way in (DEBOUNCED, AGAIN)),
    ]
    alone, beside = (Figure(way, "publishes/s", [run.rate for run in runs[way]]) for way in (ALONE, BESIDE))
    figures += [alone, replace(beside, limit=alone, target=Target(0.7, at_least=True)), *from_python]
    if is_private:
        bare_cpu, *others = (
            Figure(f"{name}, CPU", "µs/publish", [run.cpu_us for run in runs[name]]) for name in (BARE, SILENT, AWAKE)
        )
        figures += [bare_cpu, *(replace(each, limit=bare_cpu) for each in others)]
        server, with_triggers = (
            Figure(f"{name}, CPU of the server", "µs/publish", [run.server_cpu_us for run in runs[name]])
            for name in (BARE, AWAKE)
        )
        figures += [server, replace(with_triggers, limit=server, target=Target(1.05))]
        key, *debounced = (
            Figure(f"{name}, CPU of the server", "µs/publish", [run.server_cpu_us for run in runs[name]])
            for name in (KEYED, DEBOUNCED, AGAIN)
        )
        figures += [key, *(replace(each, limit=key) for each in debounced)]
    return Report(
        "publish",
        f"{clients} connections, one INSERT of one message per transaction, runs of {seconds} s in turn.",
        figures,
    )
