"""Whether the time of a claim is independent of the content of the queue, and of rows that cannot be vacuumed."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
from bench import drain
from bench.figure import Figure, Report
from bench.postgres import Database, Postgres
from bench.usage import Machine

FEW, MANY, HELD = "10 thousand wait", "1 million wait", "10 thousand behind a held snapshot"
# How many claims of each size are timed in a round.
CLAIMS = {10: 400, 1000: 60}
BEHIND_THE_SNAPSHOT = 1_000_000
CLAIM = b"SELECT * FROM messages.claim('bench', ARRAY['noop'], %s)"
COMPLETE = b"SELECT messages.complete(%s::bigint[], %s::bigint[])"
PUBLISH = b"INSERT INTO messages.message (topic, payload) SELECT 'noop', '{\"n\": 1}' FROM generate_series(1, %s)"
MARKS_EVERY_S = 1.0


class Worker:
    """Claims, settles and publishes again, so that the backlog keeps its size."""

    def __init__(self, database: Database, conn: psycopg.Connection[Any]) -> None:
        self.database = database
        self.conn = conn
        self._marks_at = 0.0

    def claim(self, batch: int) -> float:
        """Claim once, as a daemon does, and return the milliseconds it took; the messages are settled and replaced."""
        self._raise_marks()
        began = time.perf_counter()
        rows = self.conn.execute(CLAIM, [batch], binary=True).fetchall()
        took = (time.perf_counter() - began) * 1000
        if len(rows) != batch:
            raise SystemExit(f"a claim of {batch} messages got {len(rows)}")
        self.conn.execute(COMPLETE, [[row[0] for row in rows], [row[1] for row in rows]])
        self.conn.execute(PUBLISH, [batch])
        return took

    def _raise_marks(self) -> None:
        """Move the low-water marks from which claims read, as daemons do each second."""
        if time.monotonic() >= self._marks_at:
            self.conn.execute(b"SELECT messages.raise_low_water()")
            self._marks_at = time.monotonic() + MARKS_EVERY_S


def measure(postgres: Postgres, machine: Machine, rounds: int) -> Report:
    """Time claims against each state of the queue in turn."""
    times: dict[tuple[str, int], list[list[float]]] = defaultdict(list)
    with ExitStack() as ends:
        workers = {
            FEW: ends.enter_context(_queue(postgres, "few", 10_000)),
            MANY: ends.enter_context(_queue(postgres, "many", 1_000_000)),
            HELD: ends.enter_context(_queue(postgres, "held", 10_000)),
        }
        ends.enter_context(_held_snapshot(postgres, workers[HELD]))
        for _ in range(rounds):
            for batch, claims in CLAIMS.items():
                for state, worker in workers.items():
                    machine.wait_until_quiet()
                    times[state, batch].append([worker.claim(batch) for _ in range(claims)])
    return _report(times)


@contextmanager
def _queue(postgres: Postgres, name: str, messages: int) -> Iterator[Worker]:
    """Make a queue in which this number of messages waits, and a worker for it."""
    with postgres.database(f"claim_{name}") as database:
        drain.publish(database, messages)
        with database.connect(prepare_threshold=2) as conn:
            worker = Worker(database, conn)
            # The functions are planned again about five times before their plans are kept.
            for _ in range(10):
                worker.claim(10)
            yield worker


@contextmanager
def _held_snapshot(postgres: Postgres, worker: Worker) -> Iterator[None]:
    """Hold a snapshot open while a million messages are published and settled: none of their rows can be vacuumed."""
    with worker.database.connect() as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM messages.topic")
        for _ in range(BEHIND_THE_SNAPSHOT // 1000):
            worker.claim(1000)
        postgres.checkpoint()
        yield


def _report(times: dict[tuple[str, int], list[list[float]]]) -> Report:
    figures = []
    for batch in CLAIMS:
        few = _median(FEW, batch, times)
        figures += [few, _median(MANY, batch, times, few), _median(HELD, batch, times, few)]
        figures += [_mean(FEW, batch, times), _mean(HELD, batch, times, _mean(FEW, batch, times))]
    return Report(
        "claim-flatness",
        f"Time of one claim as the client sees it. Held: a REPEATABLE READ snapshot from before {BEHIND_THE_SNAPSHOT:,} messages were worked.",
        figures,
    )


def _median(
    state: str, batch: int, times: dict[tuple[str, int], list[list[float]]], few: Figure | None = None
) -> Figure:
    values = [statistics.median(each) for each in times[state, batch]]
    return Figure(f"claim of {batch}, {state}: median", "ms", values, few)


def _mean(state: str, batch: int, times: dict[tuple[str, int], list[list[float]]], few: Figure | None = None) -> Figure:
    return Figure(
        f"claim of {batch}, {state}: mean", "ms", [statistics.fmean(each) for each in times[state, batch]], few
    )
