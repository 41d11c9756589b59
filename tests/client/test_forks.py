"""What was opened before a fork: the fork uses none of it, says so, and takes nothing from the other process."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from pgrouse import AsyncClient, Client, Context, ForkedProcess, PgrouseError, Waiter, Worker, publish, wait_for
from pgrouse.worker.child.child_pool import ChildPool
from tests.server.postgres import Database
from tests.sql.queue import Queue
from tests.unit.child_calls import start_well

FORK = multiprocessing.get_context("fork")
# Long enough for every machine; a fork that hangs fails its test.
LONG_S = 60.0
REFUSED = r"this {} was opened in process \d+, of which this process, \d+, is a fork: .* Open another one here"

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as thread:
        yield thread


def in_fork(function: Callable[[], Any]) -> Any:
    """Return what a function returns in a fork of this process, or raise what it raises there."""
    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_answer, args=(function, theirs))
    process.start()
    theirs.close()
    try:
        assert ours.poll(LONG_S), "the fork does not answer"
        answer = ours.recv()
    finally:
        process.kill()
        process.join()
        ours.close()
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _answer(function: Callable[[], Any], answers: Any) -> None:
    try:
        answer = function()
    except BaseException as error:  # noqa: BLE001 - it is the answer
        answer = error
    answers.send(answer)


def run_in_fork(coroutine: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return in_fork(lambda: asyncio.run(coroutine()))


def test_a_waiter_of_the_other_process_is_refused_at_once(queue: Queue, database: Database) -> None:
    published = queue.publish()

    with Waiter(database.dsn) as waiter:
        for wait in (lambda: waiter.wait_for(published), lambda: asyncio.run(waiter.ended(published))):
            with pytest.raises(ForkedProcess, match=REFUSED.format("Waiter")):
                in_fork(wait)


def test_a_waiter_may_be_opened_again_in_a_fork_and_both_go_on(
    queue: Queue, database: Database, thread: ThreadPoolExecutor
) -> None:
    published = queue.publish()
    queue.settle("complete", queue.claim(), ["1"])
    later = queue.publish()

    with Waiter(database.dsn) as waiter:

        def open_again() -> Any:
            with waiter:
                return waiter.wait_for(published, LONG_S)

        assert in_fork(open_again).output == 1
        wait = thread.submit(waiter.wait_for, later, LONG_S)
        queue.settle("complete", queue.claim(), ["2"])

        assert wait.result(LONG_S).output == 2


def test_the_end_of_a_block_in_a_fork_closes_nothing_of_the_other_process(queue: Queue, database: Database) -> None:
    published = queue.publish()
    queue.settle("complete", queue.claim(), ["1"])

    with Waiter(database.dsn) as waiter, Client(database.dsn) as client:
        before = client.stats()

        def end_the_block() -> str:
            waiter.close()
            client.close()
            return "ended"

        assert in_fork(end_the_block) == "ended"
        assert client.stats() == before
        assert waiter.wait_for(published, LONG_S).output == 1


def test_a_client_of_the_other_process_is_refused(database: Database) -> None:
    with Client(database.dsn) as client, psycopg.connect(database.dsn) as conn:
        for each in (client, Client(conn)):
            with pytest.raises(PgrouseError, match=REFUSED.format("Client")):
                in_fork(each.stats)
            with pytest.raises(ForkedProcess):
                in_fork(lambda each=each: each.publish("t", 1))
            with pytest.raises(ForkedProcess):
                in_fork(lambda each=each: each.wait_for(1, 5))

        assert in_fork(lambda: Client(database.dsn).stats()) == client.stats()


def test_an_async_client_of_the_other_process_is_refused(queue: Queue, database: Database) -> None:
    published = queue.publish()
    queue.settle("complete", queue.claim(), ["1"])

    async def use_it_in_forks() -> None:
        async with AsyncClient(database.dsn) as client:
            before, ended = await client.stats(), await client.wait_for(published, LONG_S)
            for call in (client.stats, lambda: client.wait_for(published, 5)):
                with pytest.raises(ForkedProcess, match=REFUSED.format("AsyncClient")):
                    await asyncio.to_thread(run_in_fork, call)

            async def end_the_block() -> str:
                await client.__aexit__(None, None, None)
                return "ended"

            assert await asyncio.to_thread(run_in_fork, end_the_block) == "ended"
            assert (await client.stats(), await client.wait_for(published, LONG_S)) == (before, ended)

    asyncio.run(use_it_in_forks())


def test_a_fork_has_no_worker_until_it_starts_its_own(
    queue: Queue, database: Database, eventually: Callable[..., Any]
) -> None:
    worker = Worker(database.dsn, handlers={"double": lambda payload: payload * 2}, shutdown_timeout="1s")

    def look() -> tuple[bool, dict[str, Any]]:
        worker.__exit__(None, None, None)
        return worker.is_running, worker.status()

    def start_its_own() -> str:
        with worker:
            return worker.name

    with worker:
        ours = worker.name
        assert in_fork(look) == (False, {})
        theirs = in_fork(start_its_own)
        published = queue.publish("double", payload="21")

        eventually(lambda: queue.archived(published))
        assert worker.is_running
    assert theirs not in ("", ours)


def test_a_fork_that_exits_ends_no_child_process_of_the_other() -> None:
    pool = ChildPool(start_well)
    try:
        before = asyncio.run(pool.call(os.getpid, limit_s=LONG_S))

        def exit_as_a_program() -> str:
            pool.close()
            return "closed"

        assert in_fork(exit_as_a_program) == "closed"
        assert asyncio.run(pool.call(os.getpid, limit_s=LONG_S)) == before
    finally:
        pool.close()


def test_a_fork_of_a_handler_gets_nothing_from_its_context_and_disturbs_nothing(
    queue: Queue, database: Database
) -> None:
    def handle(payload: str, ctx: Context) -> list[str]:
        calls: dict[str, Callable[[], Any]] = {
            "publish": lambda: ctx.publish("t", 1),
            "transaction": lambda: ctx.transaction().__enter__(),
            "step": lambda: ctx.step("step", len, payload),
            "heartbeat": lambda: ctx.heartbeat(extend="1m"),
        }
        return [f"{name} {_error_of(lambda call=call: in_fork(call))}" for name, call in calls.items()]

    calls = ("publish", "transaction", "step", "heartbeat")
    with Worker(database.dsn, handlers={"job": handle}):
        for _ in range(2):
            result = wait_for(database.dsn, publish(database.connect(), "job", "x"), LONG_S)

            assert result.output == [f"{name} ForkedProcess" for name in calls]


def _error_of(call: Callable[[], Any]) -> str:
    try:
        return f"returned {call()}"
    except Exception as error:  # noqa: BLE001 - its class is the answer
        return type(error).__name__
