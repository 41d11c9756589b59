"""The child processes of a topic: every call ends, whatever happens to its process, and affects no other call."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pgrouse.worker.child import child_link, child_pool
from pgrouse.worker.child.child_link import ChildDied, ChildLink
from pgrouse.worker.child.child_pool import ChildPool
from tests.server.alive import lives
from tests.server.deadline import eventually
from tests.unit.child_calls import (
    announce,
    announce_deaf,
    close_everything_and_be_deaf,
    fork_and_die,
    leave_a_process,
    leave_a_process_and_die,
    raise_exit,
    start_badly,
    start_well,
    wait_for,
)

# More than a pipe holds.
LARGE = "x" * 1_000_000


@pytest.fixture
def pool() -> Iterator[ChildPool]:
    pool = ChildPool(start_well)
    yield pool
    pool.close()


def processes() -> set[int]:
    """Return the child processes of pools that have not ended, or whose end was not noticed yet."""
    children = [int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in _read(path).split()]
    return {pid for pid in children if child_link.START in _read(Path(f"/proc/{pid}/cmdline"))}


def _read(path: Path) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):  # the thread or the process has ended
        return path.read_text()
    return ""


def send_all(which: signal.Signals) -> None:
    for pid in processes():
        os.kill(pid, which)


async def outcome(call: Any) -> BaseException | object:
    async with asyncio.timeout(60):
        [ended] = await asyncio.gather(call, return_exceptions=True)
        return ended


async def announced(path: Path) -> int:
    return int(await asyncio.to_thread(eventually, lambda: path.exists() and path.read_text()))


@pytest.mark.parametrize(
    ("die", "argument", "code"), [(os._exit, 3, 3), (os._exit, 0, 0), (signal.raise_signal, 9, -9)]
)
def test_a_process_that_dies_ends_its_own_call_alone(
    pool: ChildPool, tmp_path: Path, die: Callable[[int], Any], argument: int, code: int
) -> None:
    async def run() -> list[Any]:
        other = asyncio.ensure_future(pool.call(wait_for, tmp_path / "end", limit_s=None))
        died = await outcome(pool.call(die, argument, limit_s=None))
        (tmp_path / "end").touch()
        return [died, await outcome(other)]

    died, other = asyncio.run(run())

    assert isinstance(died, ChildDied)
    assert (died.exit_code, str(died)) == (code, f"the handler's process died with exit code {code}")
    assert other == "end"


@pytest.mark.long
def test_a_call_that_its_process_had_not_started_ends_without_an_exit_code(
    pool: ChildPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []
    answer = ChildLink.answer

    def record(link: ChildLink, contents: bytes, limit_s: float | None) -> Any:
        sent.append(contents)
        return answer(link, contents, limit_s)

    async def die_stopped() -> list[Any]:
        await asyncio.gather(*(pool.call(time.sleep, 0.5, limit_s=None) for _ in range(4)))
        monkeypatch.setattr(ChildLink, "answer", record)
        send_all(signal.SIGSTOP)
        calls = [asyncio.ensure_future(pool.call(len, LARGE, limit_s=None)) for _ in range(4)]
        await asyncio.to_thread(eventually, lambda: len(sent) == 4)
        send_all(signal.SIGKILL)
        return [*[await outcome(each) for each in calls], await pool.call(len, LARGE, limit_s=None)]

    *ended, after = asyncio.run(die_stopped())

    assert [(type(each), each.exit_code) for each in ended] == [(ChildDied, None)] * 4
    assert after == len(LARGE)


@pytest.mark.long
def test_a_process_that_does_not_start_its_call_is_killed(pool: ChildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_link, "TERMINATE_S", 0.2)

    async def call_a_stopped_one() -> list[Any]:
        before: int = await pool.call(os.getpid, limit_s=None)
        os.kill(before, signal.SIGSTOP)
        with monkeypatch.context() as patched:
            patched.setattr(child_link, "TAKE_S", 0.3)
            ended = await outcome(pool.call(os.getpid, limit_s=None))
        await asyncio.to_thread(eventually, lambda: not lives(before))
        return [ended, await pool.call(os.getpid, limit_s=None) != before]

    ended, is_new = asyncio.run(call_a_stopped_one())

    assert isinstance(ended, ChildDied)
    assert "did not start the handler" in str(ended)
    assert is_new


@pytest.mark.parametrize("is_seen", [True, False])
def test_processes_that_die_idle_fail_no_call(pool: ChildPool, is_seen: bool) -> None:
    async def die_idle() -> int:
        before: int = await pool.call(os.getpid, limit_s=None)
        os.kill(before, signal.SIGKILL)
        if is_seen:
            await asyncio.to_thread(eventually, lambda: all(each.is_over for each in pool._children))
        else:
            await asyncio.to_thread(eventually, lambda: not lives(before))
        return await pool.call(os.getpid, limit_s=None) - before

    assert asyncio.run(die_idle()) != 0


@pytest.mark.long
def test_a_process_that_its_child_outlived_is_seen_to_die_idle(pool: ChildPool, tmp_path: Path) -> None:
    async def die_idle() -> tuple[int, int]:
        before: int = await pool.call(leave_a_process, tmp_path / "pid", limit_s=None)
        left = await announced(tmp_path / "pid")
        os.kill(before, signal.SIGKILL)
        await asyncio.to_thread(eventually, lambda: not lives(before))
        return left, await pool.call(os.getpid, limit_s=None) - before

    left, difference = asyncio.run(die_idle())
    os.kill(left, signal.SIGKILL)

    assert difference != 0


@pytest.mark.long
def test_a_process_that_is_stopped_takes_no_large_call_for_ever(
    pool: ChildPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_link, "TERMINATE_S", 0.2)

    async def call_a_stopped_one() -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(child_link, "TAKE_S", 0.3)
            first = asyncio.ensure_future(pool.call(os.getpid, limit_s=None))
            await asyncio.sleep(0)
        before = await first
        os.kill(before, signal.SIGSTOP)
        return await outcome(pool.call(len, LARGE, limit_s=None))

    assert isinstance(asyncio.run(call_a_stopped_one()), ChildDied)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_copy_of_the_daemon_does_not_keep_a_process_from_its_end(pool: ChildPool, tmp_path: Path) -> None:
    """A handler in a thread may use multiprocessing, which forks."""

    async def cancel() -> int:
        call = asyncio.ensure_future(pool.call(announce, tmp_path / "pid", limit_s=None))
        pid = await announced(tmp_path / "pid")
        copy.start()
        call.cancel()
        await asyncio.to_thread(eventually, lambda: not lives(pid))
        return pid

    copy = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,), daemon=True)
    try:
        assert asyncio.run(cancel())
    finally:
        copy.kill()
        copy.join()


def test_a_process_that_closed_everything_is_killed(pool: ChildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_link, "TERMINATE_S", 0.2)

    ended = asyncio.run(outcome(pool.call(close_everything_and_be_deaf, limit_s=None)))

    assert isinstance(ended, ChildDied)
    assert "did not finish its answer, and was killed" in str(ended)
    assert eventually(lambda: not processes())


def test_a_limit_may_be_longer_than_one_wait(pool: ChildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_link, "MAX_WAIT_S", 0.1)

    async def take_half_a_second() -> list[Any]:
        in_time = await outcome(pool.call(time.sleep, 0.5, limit_s=60))
        return [in_time, await outcome(pool.call(time.sleep, 3600, limit_s=0.5))]

    in_time, too_late = asyncio.run(take_half_a_second())

    assert in_time is None
    assert isinstance(too_late, TimeoutError)


def test_a_process_that_another_thread_waited_for_ends_its_call(pool: ChildPool) -> None:
    """A handler in a thread of the daemon may wait for any process: then the exit code is not to be had here."""

    def wait_for_any(pid: int) -> None:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)

    async def die() -> Any:
        waiting = asyncio.create_task(asyncio.to_thread(wait_for_any, await pool.call(os.getpid, limit_s=None)))
        died = await outcome(pool.call(os._exit, 3, limit_s=None))
        await waiting
        return died, await pool.call(len, LARGE, limit_s=None)

    died, after = asyncio.run(die())

    assert isinstance(died, ChildDied)
    assert after == len(LARGE)


def test_a_process_makes_one_call_after_the_other_and_is_replaced_in_time(
    pool: ChildPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_pool, "MAX_CALLS", 3)

    async def call_often() -> list[int]:
        return [await pool.call(os.getpid, limit_s=None) for _ in range(7)]

    first, *pids = asyncio.run(call_often())

    assert pids[:2] == [first] * 2
    assert pids[2:5] == [pids[2]] * 3
    assert len({first, pids[2], pids[5]}) == 3


def test_a_process_that_cannot_start_says_why() -> None:
    pool = ChildPool(start_badly)
    try:
        error = asyncio.run(outcome(pool.call(os.getpid, limit_s=None)))
    finally:
        pool.close()

    assert isinstance(error, ChildDied)
    assert str(error).startswith("the handler's process could not start:\nTraceback")
    assert "ImportError: no module named shop" in str(error)


@pytest.mark.parametrize(
    ("function", "said"),
    [(raise_exit, "SystemExit: 7"), (multiprocessing.Lock, "RuntimeError: Lock objects should only be shared")],
    ids=["it exits", "its result cannot be sent"],
)
def test_a_call_without_a_result_says_why(pool: ChildPool, function: Callable[[], Any], said: str) -> None:
    error = asyncio.run(outcome(pool.call(function, limit_s=None)))

    assert isinstance(error, RuntimeError)
    assert said in str(error)


@pytest.mark.parametrize("function", [announce, announce_deaf])
def test_a_call_that_takes_too_long_ends_after_its_process(
    pool: ChildPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(child_link, "TERMINATE_S", 0.2)

    async def hang() -> tuple[Any, set[int]]:
        return await outcome(pool.call(function, tmp_path / "pid", limit_s=0.5)), processes()

    ended, alive = asyncio.run(hang())

    assert isinstance(ended, TimeoutError)
    assert alive == set()


def test_a_caller_that_stops_waiting_ends_the_process(pool: ChildPool, tmp_path: Path) -> None:
    async def wait_in_vain() -> tuple[int, int]:
        call = asyncio.ensure_future(pool.call(announce, tmp_path / "pid", limit_s=None))
        pid = await announced(tmp_path / "pid")
        call.cancel()
        following = await pool.call(os.getpid, limit_s=None)
        await asyncio.to_thread(eventually, lambda: not lives(pid))
        return pid, following

    pid, following = asyncio.run(wait_in_vain())

    assert pid != following


@pytest.mark.parametrize("leave", [fork_and_die, leave_a_process_and_die])
def test_what_a_call_left_behind_does_not_hide_the_end_of_its_process(
    pool: ChildPool, tmp_path: Path, leave: Callable[[Path], None]
) -> None:
    async def run() -> tuple[Any, int]:
        return await outcome(pool.call(leave, tmp_path / "pid", limit_s=None)), await announced(tmp_path / "pid")

    died, copy = asyncio.run(run())
    os.kill(copy, signal.SIGKILL)

    assert isinstance(died, ChildDied)
    assert died.exit_code == 4


def test_closing_ends_all_processes_and_their_calls(pool: ChildPool, tmp_path: Path) -> None:
    async def close_under_load() -> tuple[list[Any], set[int]]:
        paths = [tmp_path / str(n) for n in range(3)]
        calls = [asyncio.ensure_future(outcome(pool.call(announce, path, limit_s=None))) for path in paths]
        pids = {await announced(path) for path in paths}
        await pool.call(os.getpid, limit_s=None)
        await asyncio.to_thread(pool.close)
        ended = [*await asyncio.gather(*calls), await outcome(pool.call(os.getpid, limit_s=None))]
        return ended, {pid for pid in pids if lives(pid)}

    ended, alive = asyncio.run(close_under_load())

    assert [type(each) for each in ended] == [ChildDied] * 4
    assert alive == set()
    assert processes() == set()


def test_a_clock_set_back_extends_no_call(pool: ChildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang() -> None:
        await pool.call(os.getpid, limit_s=None)
        call = asyncio.ensure_future(pool.call(time.sleep, 3600, limit_s=0.5))
        await asyncio.sleep(0.2)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        async with asyncio.timeout(20):
            await call

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(hang())
    assert time.monotonic() - began < 20, "it was the pool that ended it"
