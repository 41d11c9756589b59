"""Measures the cost of policies that only another topic has.

Rows of the other benchmarks are measured with every policy elsewhere, and with none.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import drain, handler_kinds, latency, program, publish, publish_python, trickle
from bench.figure import Figure, Report, Target, percentile
from bench.postgres import Database, Postgres
from bench.usage import Machine

EVERY_POLICY = """
    INSERT INTO messages.topic
      (topic, max_attempts, lock_duration, timeout, backoff, lock_expired_delay, strict_lock, key_ttl, key_on_retry,
        ttl, max_depth, on_full,
       max_payload_bytes, max_concurrency, dequeue_rate, burst, publish_rate, channel_concurrency,
       channel_min_interval, ordered,
       archive_success, retention, dead_letter, max_redrives, notify, breaker, payload_schema)
    VALUES
      ('other', 5, '1 min', '50 s', '{"kind": "constant", "base": "1s"}', '1 s', true, '1 hour', 'keep', '1 day', 1000,
        'drop',
       1000, 10, 1000, 10, 1000, 1, '1 s', true,
       'none', '1 day', true, 1, 'always', '{}', '{"type": "object"}')
"""
# The setup of each side before it is measured.
SIDES = {"no policy anywhere": "SELECT", "every policy elsewhere": EVERY_POLICY}
DRAINED = 100_000
SECONDS = 4
WAKES = 100
RATE = 1000
FASTER, SOONER = Target(0.95, at_least=True), Target(1.05)


@dataclass(frozen=True)
class Row:
    """A quantity that is measured on both sides: its name, its unit, and the ratio that it must reach."""

    what: str
    unit: str
    target: Target


Measured = Iterator[tuple[Row, float]]


def measure(postgres: Postgres, machine: Machine, rounds: int) -> Report:
    """Measure each row on both sides in turn, forward and backward."""
    values: dict[tuple[Row, str], list[float]] = defaultdict(list)
    with ExitStack() as ends:
        sides = {name: ends.enter_context(postgres.database(f"side_{n}")) for n, name in enumerate(SIDES)}
        for name, database in sides.items():
            with database.connect() as conn:
                conn.execute(SIDES[name].encode())
                conn.execute(handler_kinds.EFFECT)
        for measured in (_drain, _handlers, _wake, _steady, _publishers, _python):
            for number in range(rounds):
                for name in list(sides) if number % 2 else reversed(sides):
                    for row, value in measured(postgres, machine, sides[name]):
                        values[row, name].append(value)
    return _report(values)


def _drain(postgres: Postgres, machine: Machine, side: Database) -> Measured:
    """Drain a backlog with `concurrency = 1000`."""
    with postgres.database("elsewhere_backlog", side) as backlog:
        drain.publish(backlog, DRAINED)
        run = drain.by_daemon(postgres, machine, backlog, DRAINED)
    yield Row(f"drain, concurrency = {drain.CONCURRENCY}", "messages/s", FASTER), run.rate


def _handlers(postgres: Postgres, machine: Machine, side: Database) -> Measured:
    """Drain a backlog with each kind of handler, at the defaults."""
    with postgres.database("elsewhere_backlog", side) as backlog:
        for kind in handler_kinds.KINDS:
            with backlog.connect() as conn:
                conn.execute("TRUNCATE messages.message")
            drain.publish(backlog, kind.messages)
            run = drain.by_daemon(postgres, machine, backlog, kind.messages, concurrency=None, noop=kind.noop)
            yield Row(f"defaults, handler: {kind.what}", "messages/s", FASTER), run.rate


def _wake(postgres: Postgres, machine: Machine, side: Database) -> Measured:
    """Publish to an idle daemon, one message at a time."""
    with (
        postgres.database("elsewhere", side) as database,
        tempfile.TemporaryDirectory() as folder,
        program.daemon(database, marks=Path(folder) / "begun"),
        database.connect(prepare_threshold=0) as conn,
    ):
        program.wait_until_asleep(database)
        machine.wait_until_quiet()
        for nth, (kind, send) in enumerate(latency.PUBLISH.items()):
            numbers = range(nth * WAKES, (nth + 1) * WAKES)
            delays = latency.delays(conn, send, numbers, program.Marks(Path(folder) / "begun"))
            value = percentile([delay.from_call for delay in delays], 0.5)
            yield Row(f"call of INSERT to handler, {kind}, p50", "ms", SOONER), value


def _steady(postgres: Postgres, machine: Machine, side: Database) -> Measured:
    """Publish at a steady rate while a daemon runs."""
    with postgres.database("alone", side) as alone, postgres.database("elsewhere", side) as database:
        machine.wait_until_quiet()
        run = trickle.run(postgres, alone, database, RATE, SECONDS)
    yield Row(f"{RATE}/s, call of INSERT to handler, p50", "ms", SOONER), percentile(run.delays, 0.5)
    yield Row(f"{RATE}/s, call of INSERT to handler, p99", "ms", SOONER), percentile(run.delays, 0.99)
    yield Row(f"{RATE}/s, CPU of the server", "cores", SOONER), run.server_cores


def _publishers(postgres: Postgres, machine: Machine, side: Database) -> Measured:
    """Publish one message per transaction.

    Over 8 connections without a daemon, and over one connection while a daemon runs.
    """
    with postgres.database("elsewhere", side) as database:
        alone = publish.run(postgres, machine, database, "publish.sql", SECONDS, clients=8)
        yield Row("publish, 8 connections, no daemon", "publishes/s", FASTER), alone.rate
        yield Row("the same, CPU of server and publishers", "µs/publish", SOONER), alone.cpu_us
    beside = publish.run_beside(postgres, machine, side, SECONDS)
    yield Row("publish, one connection while a daemon runs", "publishes/s", FASTER), beside.rate


def _python(postgres: Postgres, machine: Machine, side: Database) -> Measured:
    """Publish with the Python package."""
    with postgres.database("elsewhere", side) as database, database.connect() as conn:
        machine.wait_until_quiet()
        for name in (publish_python.PUBLISH, publish_python.LIST):
            yield Row(name, "messages/s", FASTER), publish_python.rate(conn, name)


def _report(values: dict[tuple[Row, str], list[float]]) -> Report:
    none, elsewhere = SIDES
    figures = []
    for row in dict.fromkeys(row for row, _ in values):
        limit = Figure(f"{row.what}, {none}", row.unit, values[row, none])
        figures += [limit, Figure(f"{row.what}, {elsewhere}", row.unit, values[row, elsewhere], limit, row.target)]
    return Report("elsewhere", "Each row with every policy on another topic, and with no policy, in turn.", figures)
