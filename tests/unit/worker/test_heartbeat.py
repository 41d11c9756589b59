"""The heartbeat's thread: which locks it extends and when, and what it logs. Its connection only records calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

import psycopg
import pytest
from structlog.testing import LogCapture

from pgrouse.client.call import Call
from pgrouse.client.message import Message
from pgrouse.errors import LockLost
from pgrouse.worker.execution.in_flight import InFlight
from pgrouse.worker.loop import heartbeat
from pgrouse.worker.loop.heartbeat import Heartbeat, Registration, WorkerRequests

T = TypeVar("T")
Claimed = Callable[..., Message]


@pytest.fixture(autouse=True)
def _nothing_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that pauses for a moment is not a blocked event loop."""
    monkeypatch.setattr(heartbeat, "LOOP_BLOCKED_S", 3600.0)


class Notes:
    """A double of database, connection and cursor; `beats` has the time and the ids of every heartbeat."""

    def __init__(self) -> None:
        self.beats: list[tuple[float, set[int]]] = []
        self.lost: list[int] = []
        self.cancelled: list[int] = []
        self.locked_for: list[Any] = []
        self.progress: list[tuple[float, list[str]]] = []
        self.fails = False
        self.refuses = b"nothing"
        self.timeouts: list[str] = []
        self.connections = 0
        self.signed = False

    @property
    def broken(self) -> bool:
        return self.fails

    def connect_blocking(self, role: str) -> Notes:
        self.connections += 1
        return self

    def transaction(self) -> nullcontext[None]:
        return nullcontext()

    def execute(self, statement: Any, values: Any = ()) -> Notes:
        if self.fails:
            raise psycopg.OperationalError("gone")
        text = statement if isinstance(statement, bytes) else statement.encode()
        if self.refuses in text:
            raise psycopg.errors.QueryCanceled("it takes too long")
        if b"statement_timeout" in text and values:
            self.timeouts.append(values[0])
        if b"messages.cancelled_ids" in text:
            self._row = (self.cancelled,)
        elif b"messages.set_progress" in text:
            self.progress.append((time.monotonic(), values[2]))
            self._row = ([],)
        elif b"messages.heartbeat" in text:
            self.locked_for.append(values[2] if len(values) > 2 else None)
            ids = {int(each) for each in values[0].strip("{}").split(",")}
            self.beats.append((time.monotonic(), ids))
            self._row: tuple[Any] = ([each for each in self.lost if each in ids],)
        else:
            self._row = (True,)
            self.signed = True
        return self

    def fetchone(self) -> tuple[Any]:
        return self._row

    def run(self, call: Call[T]) -> T:
        return call.read([self.execute(call.statement, call.values).fetchone()])

    def fileno(self) -> int:
        raise psycopg.OperationalError("no socket")

    def close(self) -> None:
        pass

    def beats_of(self, message: Message) -> list[float]:
        return [at for at, ids in self.beats if message.id in ids]


@pytest.fixture(autouse=True)
def calls_on_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "run", Notes.run)


@asynccontextmanager
async def beating(
    in_flight: InFlight,
    notes: Notes,
    on_lock_lost: Callable[[list[Message]], None] = print,
    on_requests: Callable[[WorkerRequests], None] | None = None,
) -> AsyncIterator[Heartbeat]:
    worker = Registration("w", "h", 1, "0", [], 1)
    thread = Heartbeat(notes, in_flight, on_lock_lost, worker, dict, on_requests=on_requests)  # type: ignore[arg-type]
    thread.start()
    try:
        yield thread
    finally:
        await asyncio.to_thread(thread.stop)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what it waits for happens in the thread
            await asyncio.sleep(0.005)


async def test_a_lock_is_extended_once_a_third_of_it_is_over(claimed: Claimed) -> None:
    in_flight, notes = InFlight(), Notes()
    early, due = claimed(lock_duration_s=3600), claimed(lock_duration_s=3600)
    in_flight.add([early], time.monotonic() - 600)
    in_flight.add([due], time.monotonic() - 1201)

    async with beating(in_flight, notes):
        await until(lambda: notes.beats)

    assert (len(notes.beats_of(early)), len(notes.beats_of(due))) == (0, 1)


async def test_what_was_extended_is_forgotten_once_it_is_not_in_flight_anymore(claimed: Claimed) -> None:
    in_flight, notes = InFlight(), Notes()
    kept, *ended = [claimed(lock_duration_s=3600) for _ in range(100)]
    long_ago = time.monotonic() - 1201
    in_flight.add([kept, *ended], long_ago)
    async with beating(in_flight, notes) as thread:
        await until(lambda: notes.beats_of(kept))
        in_flight.remove(ended)

        thread.run_now()
        await until(lambda: len(notes.beats_of(kept)) == 2)
        await asyncio.to_thread(thread.stop)

    assert set(thread._extended_at) == {(kept.id, kept.claim_id)}


async def test_a_short_lock_that_arrives_during_a_long_pause_is_extended_in_time(
    claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "MAX_PAUSE_S", 3600.0)
    in_flight, notes, message = InFlight(), Notes(), claimed(lock_duration_s=0.3)
    pauses: list[float] = []
    wait = in_flight.wake_heartbeat.wait
    monkeypatch.setattr(in_flight.wake_heartbeat, "wait", lambda pause_s: [pauses.append(pause_s), wait(pause_s)])

    async with beating(in_flight, notes):
        await until(lambda: pauses)
        in_flight.add([message], time.monotonic())
        await until(lambda: notes.beats_of(message))

    # The planned wait, and not the real one: the machine may delay it.
    first, *others = pauses
    assert first == 3600
    assert max(others) <= 0.3 / 3


async def test_a_report_of_a_lost_lock_checks_all_locks_at_once(claimed: Claimed) -> None:
    in_flight, notes, message = InFlight(), Notes(), claimed(lock_duration_s=3600)
    in_flight.add([message], time.monotonic())
    notes.lost = [message.id]
    lost: list[Message] = []

    async with beating(in_flight, notes, lost.extend) as thread:
        await until(lambda: notes.connections)
        thread.run_now()
        await until(lambda: lost)

    assert lost == [message]


async def test_a_handler_that_ignores_its_timeout_is_not_extended_forever(
    claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "STOP_GRACE_S", 3600.0)
    in_flight, notes = InFlight(), Notes()
    overrun, fine = claimed(lock_duration_s=0.06, timeout_s=0.1), claimed(lock_duration_s=0.06, timeout_s=3600)
    in_flight.add([overrun, fine], time.monotonic())
    for message in (overrun, fine):
        in_flight.mark_started([message], time.monotonic() - 10)

    async with beating(in_flight, notes):
        # Its timeout has passed and its grace has not: it may still stop.
        await until(lambda: len(notes.beats_of(overrun)) >= 2)
        monkeypatch.setattr(heartbeat, "STOP_GRACE_S", 5.0)
        at_least = len(notes.beats_of(fine)) + 2  # one may have begun before
        await until(lambda: len(notes.beats_of(fine)) >= at_least)
        covered = len(notes.beats_of(overrun))
        await until(lambda: len(notes.beats_of(fine)) >= at_least + 5)

    assert len(notes.beats_of(overrun)) == covered


async def test_a_lost_connection_is_logged_once_and_replaced(claimed: Claimed, logged: LogCapture) -> None:
    in_flight, notes, message = InFlight(), Notes(), claimed(lock_duration_s=0.3)
    in_flight.add([message], time.monotonic())

    async with beating(in_flight, notes) as thread:
        await until(lambda: notes.beats)
        notes.fails = True
        await until(lambda: notes.connections >= 3)
        notes.fails = False
        before = len(notes.beats)
        await until(lambda: len(notes.beats) > before)
        assert thread.is_alive()

    assert [e["event"] for e in logged.entries] == ["heartbeat.failed", "heartbeat.restored"]


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError(), KeyError("a bug")])
async def test_any_error_of_one_heartbeat_is_followed_by_the_next(
    claimed: Claimed, logged: LogCapture, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(heartbeat, "MAX_PAUSE_S", 0.01)
    in_flight, notes, message = InFlight(), Notes(), claimed(lock_duration_s=0.3)
    in_flight.add([message], time.monotonic())

    async with beating(in_flight, notes) as thread:
        with monkeypatch.context() as broken:
            broken.setattr(notes, "execute", lambda *_: _raise(error))
            extension = in_flight.extend(message, timedelta(hours=1))
            await until(lambda: thread.is_failing)
        await until(lambda: extension.done() and notes.beats_of(message))

    assert [entry["reason"] for entry in logged.entries if entry["event"] == "heartbeat.failed"] == [
        str(error) or "MemoryError"
    ]


def _raise(error: Exception) -> None:
    raise error


async def test_an_extension_request_waits_during_an_outage(claimed: Claimed, logged: LogCapture) -> None:
    in_flight, notes, message = InFlight(), Notes(), claimed(lock_duration_s=3600)
    in_flight.add([message], time.monotonic())
    notes.fails = True

    async with beating(in_flight, notes):
        extension = in_flight.extend(message, timedelta(minutes=10))
        await until(lambda: notes.connections >= 2)
        assert not extension.done()
        notes.fails = False
        await asyncio.wrap_future(extension)


async def test_a_pending_extension_request_fails_at_the_end(claimed: Claimed) -> None:
    in_flight, notes, message = InFlight(), Notes(), claimed(lock_duration_s=3600)
    notes.fails = True

    async with beating(in_flight, notes):
        extension = in_flight.extend(message, timedelta(minutes=10))

    with pytest.raises(LockLost):
        extension.result(timeout=30)


async def test_a_request_of_a_cancelled_handler_is_harmless(claimed: Claimed) -> None:
    in_flight, notes, message = InFlight(), Notes(), claimed(lock_duration_s=3600)
    in_flight.add([message], time.monotonic())

    async with beating(in_flight, notes) as thread:
        in_flight.extend(message, timedelta(minutes=10)).cancel()
        await asyncio.wrap_future(in_flight.extend(message, timedelta(minutes=20)))
        assert thread.is_alive()


async def test_a_cancellation_is_known_before_the_event_loop_handles_the_loss(claimed: Claimed) -> None:
    in_flight, notes, message = InFlight(), Notes(), claimed(lock_duration_s=3600)
    in_flight.add([message], time.monotonic())
    notes.lost = notes.cancelled = [message.id]
    known: list[bool] = []

    async with beating(in_flight, notes, lambda lost: known.append(in_flight.is_cancelled(message))) as thread:
        await until(lambda: notes.connections)
        thread.run_now()
        await until(lambda: known)

    assert known == [True]


@pytest.mark.parametrize("refused", [b"touch_worker", b"drain_asked_at"])
async def test_a_refused_worker_heartbeat_is_logged_once_and_keeps_the_connection(
    claimed: Claimed, logged: LogCapture, monkeypatch: pytest.MonkeyPatch, refused: bytes
) -> None:
    monkeypatch.setattr(heartbeat, "REGISTRY_RETRY_S", 0.02)
    in_flight, notes, message = InFlight(), Notes(), claimed(lock_duration_s=0.06)
    in_flight.add([message], time.monotonic())
    notes.refuses = refused
    drained: list[bool] = []

    async with beating(in_flight, notes, on_requests=lambda asked: drained.append(asked.drain)) as thread:
        await until(lambda: len(notes.beats) > 5)
        assert (thread.is_failing, thread.last_seen_at, drained) == (False, 0.0, [])
        notes.refuses = b"nothing"
        await until(lambda: drained and thread.last_seen_at > 0)

    assert [entry["event"] for entry in logged.entries] == ["registry.update_failed"]
    assert notes.connections == 1


@pytest.mark.parametrize(("lock_duration_s", "timeout_ms"), [(3600, "1000"), (0.6, "200"), (0.03, "50")])
async def test_calls_after_the_locks_take_a_third_of_the_shortest_lock_at_most(
    claimed: Claimed, lock_duration_s: float, timeout_ms: str
) -> None:
    in_flight, notes = InFlight(), Notes()
    in_flight.add([claimed(lock_duration_s=3600), claimed(lock_duration_s=lock_duration_s)], time.monotonic())

    async with beating(in_flight, notes):
        await until(lambda: notes.timeouts)

    assert notes.timeouts[0] == timeout_ms
