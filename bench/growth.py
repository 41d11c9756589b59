"""Measures whether the time of a claim and of a settle depends on what the queue and its archive hold."""

from __future__ import annotations

import json
import random
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import psycopg
from bench import growth_states
from bench.figure import Figure, Report, Target
from bench.growth_states import State
from bench.postgres import Database, Postgres
from bench.usage import Machine

from pgrouse.client.calls.processing.claim import claim
from pgrouse.client.message import Message, claim_refs
from pgrouse.client.queries.message import read_message, read_shown
from pgrouse.web.page.message_detail import MAX_SHOWN_BYTES, MAX_SHOWN_CHARS

# How many claims of each size are measured in a round, and in how many blocks: the states take turns after each block.
CLAIMS = {10: 200, 1000: 30}
BLOCKS = 10
# A block of a slow state ends after this time.
BLOCK_S = 0.5
LOOKS = 300
BEFORE_THE_DROP_S, AFTER_THE_DROP_S = 1.0, 0.1
TARGET = Target(1.3)
BEHIND_THE_SNAPSHOT = 1_000_000
COMPLETE = b"SELECT messages.complete(%s::bigint[], %s::bigint[])"
PUBLISH = b"""
    INSERT INTO messages.message (topic, channel, payload)
    SELECT m.topic, m.channel, '{"n": 1}' FROM unnest(%s::text[], %s::text[]) AS m (topic, channel)"""
MARKS_EVERY_S = 1.0
# A time after the retention of every message of today.
MUCH_LATER = b"SELECT set_config('messages.fake_now', (clock_timestamp() + '1 year')::text, false)"
LOOK_UPS = {
    "the dashboard": partial(read_shown, chars=MAX_SHOWN_CHARS, bytes_=MAX_SHOWN_BYTES),
    "the command line": read_message,
}

Times = dict[tuple[str, str], list[float]]


class Worker:
    """Claims, settles and publishes again, so that the queue keeps its size."""

    def __init__(self, state: State, database: Database, conn: psycopg.Connection[Any]) -> None:
        self.state = state
        self.database = database
        self.conn = conn
        self._after_topic: str | None = None
        self._after_channels: dict[str, str] = {}
        self._marks_at = 0.0

    def work(self, batch: int) -> tuple[float, float]:
        """Claim and settle, and return the milliseconds of each; publish as many messages again."""
        self._raise_marks()
        began = time.perf_counter()
        rows = self._claim(batch)
        claimed = time.perf_counter()
        self.conn.execute(COMPLETE, list(claim_refs(rows)))
        settled = time.perf_counter()
        self.conn.execute(PUBLISH, [[row.topic for row in rows], [row.channel for row in rows]])
        return (claimed - began) * 1000, (settled - claimed) * 1000

    def _claim(self, batch: int) -> list[Message]:
        """Claim until something is found.

        A claim that searched many channels without success continues in the next one.
        """
        rows: list[Message] = []
        while not rows:
            channels = json.dumps(self._after_channels) if self._after_channels else None
            # Claim as a daemon does: it passes where its last claim ended.
            call = claim("bench", self.state.topics, batch, after_topic=self._after_topic, after_channels=channels)
            rows = call.read(self.conn.execute(call.statement, call.values, binary=True).fetchall())
        topic, channel = rows[-1].topic, rows[-1].channel
        self._after_topic = topic if self.state.topics != ("noop",) else None
        if channel is not None:
            self._after_channels[topic] = channel
        return rows

    def _raise_marks(self) -> None:
        """Move the low-water marks from which claims read, as daemons do each second."""
        if time.monotonic() >= self._marks_at:
            self.conn.execute(b"SELECT messages.raise_low_water()")
            self._marks_at = time.monotonic() + MARKS_EVERY_S


def measure(postgres: Postgres, machine: Machine, rounds: int, ready: int, archived: int) -> Report:
    """Process a small and a large queue of each kind in turn."""
    figures = [
        figure
        for states, batches in _kinds(ready, archived)
        for figure in _compare(postgres, machine, states, batches, rounds)
    ]
    return Report(
        "growth",
        "Median time as the client sees it, small and large queue in turn; each message that ended is published again.",
        figures,
        [
            f"Snapshot: REPEATABLE READ, from before {BEHIND_THE_SNAPSHOT:,} messages were processed.",
            "A claim that got nothing is repeated, and its time counts. Look-ups: "
            "ids at random, of all that are archived.",
            "Drop: the maintenance of a day when no message of today is kept any more.",
        ],
    )


def _kinds(ready: int, archived: int) -> Iterator[tuple[Sequence[State], Sequence[int]]]:
    """Yield small and large queues, and the sizes of the claims, one kind after the other.

    Rows of today may need another date later.
    """
    few = growth_states.READY
    yield [growth_states.ready(few), growth_states.ready(ready), _behind_a_snapshot(few)], [10, 1000]
    yield [growth_states.topics(10, 10), growth_states.topics(10_000, 10), growth_states.topics(10_000, 10_000)], [10]
    yield [growth_states.topics(10, None), growth_states.topics(10_000, None)], [10]
    yield [growth_states.delayed(200), growth_states.delayed(200_000)], [10]
    yield [growth_states.ordered(200), growth_states.ordered(200_000)], [10]
    yield [growth_states.archived(few), growth_states.archived(archived)], [10, 1000]


def _compare(
    postgres: Postgres, machine: Machine, states: Sequence[State], batches: Sequence[int], rounds: int
) -> list[Figure]:
    """Process these queues in turn; the others are compared with the first."""
    times: Times = defaultdict(list)
    with ExitStack() as ends:
        workers = [ends.enter_context(_worker(postgres, n, state)) for n, state in enumerate(states)]
        for _ in range(rounds):
            postgres.checkpoint()
            machine.wait_until_quiet()
            for batch in batches:
                _work(workers, batch, times)
            if states[0].archived:
                _look_up(workers, times)
        if states[0].archived:
            _drop(postgres, workers, times)
    return list(_figures(states, times))


@contextmanager
def _worker(postgres: Postgres, number: int, state: State) -> Iterator[Worker]:
    with postgres.database(f"growth_{number}") as database:
        state.fill(database)
        with database.connect(prepare_threshold=2) as conn, state.hold(database):
            worker = Worker(state, database, conn)
            # The functions are planned again about five times before their plans are kept.
            for _ in range(10):
                worker.work(10)
            yield worker


def _behind_a_snapshot(messages: int) -> State:
    """Return a state in which the rows of many processed messages cannot be vacuumed."""

    @contextmanager
    def hold(database: Database) -> Iterator[None]:
        with database.connect() as reader, database.connect(prepare_threshold=2) as conn:
            reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM messages.topic")
            worker = Worker(growth_states.ready(messages), database, conn)
            for _ in range(BEHIND_THE_SNAPSHOT // 1000):
                worker.work(1000)
            yield

    return growth_states.ready(messages, f"{messages:,} ready behind a held snapshot", hold)


def _work(workers: Sequence[Worker], batch: int, times: Times) -> None:
    """Let the workers take turns; record the median of each."""
    claims: dict[Worker, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(BLOCKS):
        for worker in workers:
            until = time.monotonic() + BLOCK_S
            for _ in range(CLAIMS[batch] // BLOCKS):
                claims[worker].append(worker.work(batch))
                if time.monotonic() > until:
                    break
    for worker, found in claims.items():
        for what, values in zip(("claim", "settle"), zip(*found, strict=True), strict=True):
            times[f"{what} of {batch}", worker.state.what].append(statistics.median(values))


def _look_up(workers: Sequence[Worker], times: Times) -> None:
    """Look up archived messages by their ids, as the programs for people do: each look-up is planned."""
    for who, look_up in LOOK_UPS.items():
        found: dict[Worker, list[float]] = defaultdict(list)
        for _ in range(LOOKS):
            for worker in workers:
                call = look_up(random.randint(1, worker.state.archived))
                began = time.perf_counter()
                worker.conn.execute(call.statement, call.values, prepare=False, binary=True).fetchall()
                found[worker].append((time.perf_counter() - began) * 1000)
        for worker, values in found.items():
            times[f"look-up by {who}", worker.state.what].append(statistics.median(values))


def _drop(postgres: Postgres, workers: Sequence[Worker], times: Times) -> None:
    """Drop today's archive while the worker continues; record how long that took, and the longest settle."""
    for worker in workers:
        postgres.checkpoint()
        settles: list[float] = []
        with worker.database.connect() as conn, _working(worker, settles):
            conn.execute(MUCH_LATER)
            time.sleep(BEFORE_THE_DROP_S)
            settles.clear()
            began = time.perf_counter()
            conn.execute(b"SELECT messages.maintain_partitions(0)")
            took = time.perf_counter() - began
            time.sleep(AFTER_THE_DROP_S)
        times["drop of the day", worker.state.what].append(took * 1000)
        times["longest settle during the drop", worker.state.what].append(max(settles))


@contextmanager
def _working(worker: Worker, settles: list[float]) -> Iterator[None]:
    """Let the worker process messages in a thread, and record the milliseconds of its settles."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            settles.append(worker.work(10)[1])

    with ThreadPoolExecutor() as threads:
        ended = threads.submit(work)
        try:
            yield
        finally:
            stop.set()
        ended.result()


def _figures(states: Sequence[State], times: Times) -> Iterator[Figure]:
    small, *large = (state.what for state in states)
    for what in dict.fromkeys(what for what, _ in times):
        limit = Figure(f"{what}, {small}", "ms", times[what, small])
        yield limit
        for each in large:
            yield Figure(f"{what}, {each}", "ms", times[what, each], limit, TARGET)
