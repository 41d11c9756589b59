"""Measures how soon an idle daemon starts a handler, compared with how soon an idle program receives a bare NOTIFY."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from bench import program
from bench.figure import Figure, Report, Target, percentile
from bench.postgres import Postgres
from bench.usage import Machine

EVERY_S = 0.05
# A message that may be retried starts before its claim is on disk; one with a single attempt, the default, starts after
# that (decision 0008).
PUBLISH = {
    "of five attempts": b"INSERT INTO messages.message (topic, payload, max_attempts) "
    b"VALUES ('marked', jsonb_build_object('n', %s::bigint), 5)",
    "of one attempt": b"INSERT INTO messages.message (topic, payload, max_attempts) "
    b"VALUES ('marked', jsonb_build_object('n', %s::bigint), 1)",
}
NOTIFY = b"SELECT pg_notify('bare', %s::text)"
# The first messages of a round wake up processes that slept during the pause before it.
WARM_UP = 5


@dataclass(frozen=True)
class Delay:
    """The time of one message, in milliseconds: from the start of the publishing call, and from its return."""

    from_call: float
    from_return: float


def measure(postgres: Postgres, machine: Machine, rounds: int, messages: int) -> Report:
    """Send one at a time to the bare listener and to the daemon, in turn: `messages` of each in total."""
    received: list[list[Delay]] = []
    begun: dict[str, list[list[Delay]]] = {kind: [] for kind in PUBLISH}
    with (
        postgres.database("latency") as database,
        tempfile.TemporaryDirectory() as folder,
        program.daemon(database, marks=Path(folder) / "begun"),
        program.bare_listener(database, "bare", Path(folder) / "received"),
        database.connect(prepare_threshold=0) as conn,
    ):
        program.wait_until_asleep(database)
        starts = count(0, 1_000_000)
        for _ in range(rounds):
            machine.wait_until_quiet()
            received.append(
                delays(conn, NOTIFY, _numbers(starts, messages // rounds), program.Marks(Path(folder) / "received"))
            )
            for kind, send in PUBLISH.items():
                marks = program.Marks(Path(folder) / "begun")
                begun[kind].append(delays(conn, send, _numbers(starts, messages // rounds), marks))
    return _report(received, begun)


def _numbers(starts: Iterator[int], messages: int) -> range:
    start = next(starts)
    return range(start, start + messages + WARM_UP)


def delays(conn: psycopg.Connection[Any], send: bytes, numbers: range, marks: program.Marks) -> list[Delay]:
    """Send each number separately, and return how long it took, without the first few."""
    called: dict[int, int] = {}
    returned: dict[int, int] = {}
    begin = time.monotonic()
    for number in numbers:
        time.sleep(max(0.0, begin + EVERY_S * len(called) - time.monotonic()))
        called[number] = time.monotonic_ns()
        conn.execute(send, [number])
        returned[number] = time.monotonic_ns()
    arrived = marks.wait_for(set(map(str, numbers)))
    return [
        Delay((arrived[str(n)] - called[n]) / 1e6, (arrived[str(n)] - returned[n]) / 1e6) for n in numbers[WARM_UP:]
    ]


def _report(received: list[list[Delay]], begun: dict[str, list[list[Delay]]]) -> Report:
    figures = []
    for name, share, at_most in (("p50", 0.5, 2.0), ("p99", 0.99, 8.0)):
        limit = _from_call(f"call of NOTIFY to received, {name}", share, received)
        figures.append(limit)
        for kind, delays in begun.items():
            figures.append(_from_call(f"call of INSERT to handler, {kind}, {name}", share, delays, limit))
            values = [percentile([delay.from_return for delay in each], share) for each in delays]
            what = f"return of INSERT to handler, {kind}, {name}"
            figures.append(Figure(what, "ms", values, target=Target(at_most)))
    return Report(
        "latency",
        f"{sum(map(len, received))} messages of each kind to an idle daemon, and as many bare notifications to "
        f"an idle program: one each {EVERY_S * 1000:.0f} ms.",
        figures,
    )


def _from_call(what: str, share: float, delays: list[list[Delay]], limit: Figure | None = None) -> Figure:
    return Figure(what, "ms", [percentile([delay.from_call for delay in each], share) for each in delays], limit)
