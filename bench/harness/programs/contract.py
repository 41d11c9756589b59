"""The contract of the harness: what an adapter reads, does and prints. The queue itself is in the other programs here.

The page CONTRIBUTING_ADAPTERS of the harness describes it. This file needs only Python, so that it runs in the
environment of any queue.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

WINDOW_S = 30
# How often the depth is read.
DEPTH_EVERY_S = 0.25
RETRY_S = 0.1
Process = Callable[[Sequence[dict[str, Any]]], Awaitable[None]]


class Queue(ABC):
    """The queue that is measured.

    Args:
        url: its database.
        workers: how many messages may be processed at once.
        topics: the names of its queues: messages are published to each in turn.
    """

    def __init__(self, url: str, workers: int, topics: Sequence[str]) -> None:
        self.url, self.workers, self.topics = url, workers, topics

    @abstractmethod
    async def start(self, process: Process) -> None:
        """Install it, and start to process messages; `process` takes the payloads of one or of several."""

    @abstractmethod
    async def publish(self, topic: str, payloads: list[dict[str, Any]]) -> None:
        """Publish messages, all or none; if this raises, they may have been published nevertheless."""

    @abstractmethod
    async def depth(self) -> int:
        """Return how many messages wait."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop to process messages."""

    async def wait(self) -> None:
        """Wait until it fails; raise why."""
        await asyncio.Event().wait()


@dataclass(frozen=True)
class Settings:
    """What the harness asks for, by environment variables."""

    url: str
    instance: int
    mode: str
    rate: float
    rate_file: Path | None
    batch_size: int
    batch_s: float
    depth: int
    workers: int
    payload_bytes: int
    work_s: float
    sample_s: int
    topics: int
    ledger: Path | None

    @classmethod
    def read(cls, env: Mapping[str, str] = os.environ) -> Settings:
        """Read them."""

        def number(name: str, default: int) -> int:
            return int(env.get(name) or default)

        def path(name: str) -> Path | None:
            return Path(env[name]) if env.get(name) else None

        return cls(
            url=env["DATABASE_URL"],
            instance=number("BENCH_INSTANCE_ID", 0),
            mode=env.get("PRODUCER_MODE", "fixed"),
            rate=number("PRODUCER_RATE", 800),
            rate_file=path("PRODUCER_RATE_CONTROL_FILE"),
            batch_size=number("PRODUCER_BATCH_MAX", 128),
            batch_s=number("PRODUCER_BATCH_MS", 25) / 1000,
            depth=number("TARGET_DEPTH", 1000),
            workers=number("WORKER_COUNT", 32),
            payload_bytes=number("JOB_PAYLOAD_BYTES", 256),
            work_s=number("JOB_WORK_MS", 1) / 1000,
            sample_s=number("SAMPLE_EVERY_S", 5),
            topics=number("BENCH_QUEUE_COUNT", 1),
            ledger=path("PGROUSE_BENCH_LEDGER"),
        )

    def current_rate(self) -> float:
        """Return the rate of messages, which the harness changes while it runs."""
        with suppress(OSError, ValueError):
            return float(self.rate_file.read_text()) if self.rate_file else self.rate
        return self.rate


class Window:
    """Percentiles of the last 30 seconds, to three digits, in bounded memory."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, Counter[float]]] = deque(maxlen=WINDOW_S)

    def add(self, value: float) -> None:
        """Add a value of this moment."""
        second = int(time.monotonic())
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append((second, Counter()))
        self._seconds[-1][1][float(f"{value:.3g}")] += 1

    def percentiles(self) -> dict[str, float]:
        """Return p50, p95 and p99; nothing without values."""
        since = time.monotonic() - WINDOW_S
        counts = sum((counts for second, counts in self._seconds if second >= since), Counter[float]())
        found, seen, wanted = {}, 0, [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)]
        for value in sorted(counts):
            seen += counts[value]
            while wanted and seen >= wanted[0][1] * counts.total():
                found[wanted.pop(0)[0]] = value
        return found


class Ledger:
    """A file in which a publisher records each batch before and after it was published; it outlives a killed process.

    Its lines are `begin RUN BATCH SIZE` and `end RUN BATCH`.
    """

    def __init__(self, folder: Path | None, run: str) -> None:
        self._run = run
        self._file = os.open(folder / run, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if folder else None

    def write(self, word: str, *numbers: int) -> None:
        """Write one line."""
        if self._file is not None:
            os.write(self._file, f"{word} {self._run} {' '.join(map(str, numbers))}\n".encode())


class Adapter:
    """Publishes, processes and prints what the harness wants to know."""

    def __init__(self, settings: Settings, queue: Queue, about: dict[str, Any]) -> None:
        self._settings, self._queue, self._about = settings, queue, about
        self._run = f"{settings.instance}-{os.getpid()}-{time.time_ns()}"
        self._ledger = Ledger(settings.ledger, self._run)
        self._claims, self._ends = Window(), Window()
        self._published = self._begun = self._completed = self._depth = 0
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Run until SIGTERM.

        Raises:
            Exception: the reason why the queue cannot go on.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        await self._queue.start(self._process)
        self._emit({"kind": "descriptor", **self._about, "started_at": _now()})
        tasks = [asyncio.create_task(each()) for each in (self._publish, self._measure_depth, self._sample)]
        watched = [asyncio.create_task(each) for each in (self._queue.wait(), self._stopping.wait())]
        await asyncio.wait([*tasks, *watched], return_when=asyncio.FIRST_COMPLETED)
        self._stopping.set()
        await asyncio.gather(*tasks)
        await self._queue.stop()
        if watched[0].done():
            await watched[0]

    async def _process(self, payloads: Sequence[dict[str, Any]]) -> None:
        """Do the work of some messages: in a batch, as many at once as there are workers."""
        self._begun += len(payloads)
        self._record(self._claims, payloads)
        if self._settings.work_s:
            await asyncio.sleep(self._settings.work_s * ceil(len(payloads) / self._settings.workers))
        self._record(self._ends, payloads)
        self._completed += len(payloads)

    @staticmethod
    def _record(window: Window, payloads: Sequence[dict[str, Any]]) -> None:
        now = time.time()
        for payload in payloads:
            window.add(max(0.0, now - payload["at"]) * 1000)

    async def _publish(self) -> None:
        credit, counted, batch = 0.0, time.monotonic(), 0
        while not await self._stops_within(self._pause()):
            now = time.monotonic()
            credit, counted = credit + self._settings.current_rate() * (now - counted), now
            if self._settings.mode == "depth-target":
                credit = self._settings.depth - (self._published - self._begun)
            while credit >= 1 and not self._stopping.is_set():
                size = min(int(credit), self._settings.batch_size)
                await self._publish_batch(batch, size)
                credit, batch = credit - size, batch + 1

    def _pause(self) -> float:
        return 0.001 if self._settings.mode == "depth-target" else self._settings.batch_s

    async def _publish_batch(self, batch: int, size: int) -> None:
        padding = "x" * max(0, self._settings.payload_bytes - 110)
        told = {"run": self._run, "batch": batch, "padding": padding, "at": time.time()}
        topic = self._queue.topics[batch % len(self._queue.topics)]
        self._ledger.write("begin", batch, size)
        try:
            await self._queue.publish(topic, [{**told, "n": n} for n in range(size)])
        except Exception as error:  # noqa: BLE001 - the harness ends connections, and stops the server
            print(f"publish failed: {type(error).__name__}: {error}", file=sys.stderr)
            await self._stops_within(RETRY_S)
            return
        self._ledger.write("end", batch)
        self._published += size

    async def _measure_depth(self) -> None:
        if self._settings.instance:
            await self._stopping.wait()
        while not await self._stops_within(DEPTH_EVERY_S):
            with suppress(Exception):  # as above
                self._depth = await self._queue.depth()

    async def _sample(self) -> None:
        published = completed = 0
        began = time.monotonic()
        while not await self._stops_within(self._settings.sample_s - time.time() % self._settings.sample_s):
            took, began = time.monotonic() - began, time.monotonic()
            self._emit_metrics(
                {
                    **{f"claim_{name}_ms": (value, WINDOW_S) for name, value in self._claims.percentiles().items()},
                    **{f"end_to_end_{name}_ms": (value, WINDOW_S) for name, value in self._ends.percentiles().items()},
                    "enqueue_rate": ((self._published - published) / took, took),
                    "completion_rate": ((self._completed - completed) / took, took),
                }
            )
            if not self._settings.instance:
                rate = self._settings.current_rate()
                self._emit_metrics({"queue_depth": (self._depth, 0), "producer_target_rate": (rate, 0)})
            published, completed = self._published, self._completed

    def _emit_metrics(self, metrics: dict[str, tuple[float, float]]) -> None:
        told = {"t": _now(), "system": self._about["system"], "kind": "adapter"}
        for metric, (value, window_s) in metrics.items():
            self._emit(
                {**told, "subject_kind": "adapter", "subject": "", "metric": metric}
                | {"value": value, "window_s": window_s}
            )

    def _emit(self, record: dict[str, Any]) -> None:
        print(json.dumps({**record, "instance_id": self._settings.instance}), flush=True)

    async def _stops_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return self._stopping.is_set()


def main(make: Callable[[str, int, list[str]], Queue], version: str) -> None:
    """Run the adapter whose manifest is in the folder of the first argument."""
    manifest = json.loads((Path(sys.argv[1]) / "adapter.json").read_text())
    settings = Settings.read()
    about = {name: manifest[name] for name in ("system", "event_tables", "extensions", "db_name")}
    topics = [f"job_{number}" for number in range(settings.topics)]

    async def run() -> None:
        queue = make(settings.url, settings.workers, topics)
        await Adapter(settings, queue, {**about, "version": version, "schema_version": version}).run()

    _runner()(run())


def _runner() -> Callable[[Any], Any]:
    """Return what runs a coroutine: with uvloop, where it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - not in each environment
    except ImportError:
        return asyncio.run
    return uvloop.run


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
