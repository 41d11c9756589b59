"""Worker: messages are processed inside of an application's process, which it leaves as it was."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog

from pgrouse import Context, LifespanFailed, PgrouseError, Worker, publish, topic
from pgrouse.errors import ConfigError, DatabaseUnreachable, SchemaMismatch
from pgrouse.worker.loop.listener import Listener
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres

WITHIN_S = 60


def state_of(conn: psycopg.Connection[Any], message_id: int) -> tuple[Any, ...] | None:
    """The claim and the attempts of a message, or its result when it has ended."""
    live = conn.execute("SELECT claim_id, attempts FROM messages.message WHERE id = %s", [message_id]).fetchone()
    ended = conn.execute("SELECT result FROM messages.message_archive WHERE id = %s", [message_id]).fetchone()
    return live or ended


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110 - what is waited for is in the database
            await asyncio.sleep(0.01)


def test_a_message_is_worked_while_the_block_runs(database: Database, db: psycopg.Connection[Any]) -> None:
    async def main() -> int:
        done = asyncio.Event()

        async def handle(payload: dict[str, int]) -> None:
            done.set()

        async with Worker(database.dsn, handlers={"orders": handle}) as worker, asyncio.timeout(WITHIN_S):
            assert worker.is_running
            assert worker.name
            message_id = int(publish(db, "orders", {"id": 1}))
            await done.wait()
        assert not worker.is_running
        return message_id

    assert state_of(db, asyncio.run(main())) == ("success",)


def test_it_works_topics_of_code_by_their_module_or_by_themselves(
    database: Database, db: psycopg.Connection[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "worker_jobs.py").write_text('from pgrouse import topic\n\n@topic("named")\ndef named(payload): ...\n')
    monkeypatch.syspath_prepend(tmp_path)

    @topic("given", ack_policy="reject_on_error")
    def given(payload: int) -> None:
        raise OSError("down")

    messages = [int(publish(db, "named", 1)), int(publish(db, "given", 1))]

    with Worker(database.dsn, modules=["worker_jobs"], handlers={"given": given}):
        eventually(lambda: all(len(state_of(db, each) or ()) == 1 for each in messages))

    assert [state_of(db, each) for each in messages] == [("success",), ("rejected",)]


def test_the_process_is_left_as_it_was(database: Database) -> None:
    """The settings of an application stay, also while the worker runs."""

    def of_process() -> list[Any]:
        signals = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)]
        root = logging.getLogger()
        return [*signals, list(root.handlers), root.level, structlog.is_configured(), type(asyncio.new_event_loop)]

    async def main() -> tuple[list[Any], list[Any], object, object]:
        before, executor = of_process(), asyncio.get_running_loop()._default_executor
        async with Worker(database.dsn, handlers={"orders": lambda payload: None}):
            during = of_process()
        return before, during, executor, asyncio.get_running_loop()._default_executor

    before, during, executor_before, executor_after = asyncio.run(main())
    assert during == before
    assert executor_after is executor_before


def test_a_stop_lets_running_handlers_end(database: Database, db: psycopg.Connection[Any]) -> None:
    async def main() -> int:
        begun, gate = asyncio.Event(), asyncio.Event()

        async def handle(payload: object) -> None:
            begun.set()
            await gate.wait()

        worker = Worker(database.dsn, handlers={"orders": handle})
        await worker.start()
        message_id = int(publish(db, "orders"))
        await begun.wait()
        stopping = asyncio.create_task(worker.stop())
        await until(lambda: worker._service is not None and worker._service.runtime.stopping)
        assert not stopping.done()
        gate.set()
        await stopping
        return message_id

    assert state_of(db, asyncio.run(main())) == ("success",)


def test_after_its_time_a_stop_gives_messages_back(database: Database, db: psycopg.Connection[Any]) -> None:
    async def main() -> int:
        begun = asyncio.Event()

        async def handle(payload: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        worker = Worker(database.dsn, handlers={"orders": handle})
        await worker.start()
        message_id = int(publish(db, "orders"))
        await begun.wait()
        await worker.stop(timeout=0)
        return message_id

    assert state_of(db, asyncio.run(main())) == (None, 0)


def test_a_cancelled_run_gives_messages_back(database: Database, db: psycopg.Connection[Any]) -> None:
    async def main() -> int:
        begun = asyncio.Event()

        async def handle(payload: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        message_id = int(publish(db, "orders"))
        running = asyncio.create_task(Worker(database.dsn, handlers={"orders": handle}).run())
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return message_id

    assert state_of(db, asyncio.run(main())) == (None, 0)


@pytest.mark.long
def test_of_two_workers_of_one_process_each_keeps_the_log_lines_of_its_attempts(
    database: Database, db: psycopg.Connection[Any]
) -> None:
    """Both capture on the root logger: no line may be kept twice, or with the message of the other."""
    logger = logging.getLogger("shop.of_two")
    logger.setLevel(logging.INFO)

    async def first(payload: int) -> None:
        logger.info("first %s", payload)
        await asyncio.sleep(0)
        logger.info("first %s again", payload)

    def second(payload: int) -> None:
        logger.info("second %s", payload)

    async def silent(payload: int) -> None:
        logger.info("silent %s", payload)

    one = {"first": topic("first", log_bytes=1000)(first), "silent": topic("silent")(silent)}
    two = {"second": topic("second", log_bytes=1000)(second)}
    with Worker(database.dsn, handlers=one), Worker(database.dsn, handlers=two):
        ids = {(name, n): int(publish(db, name, n)) for n in range(20) for name in ("first", "second", "silent")}
        eventually(lambda: all(state_of(db, each) == ("success",) for each in ids.values()))

    for (name, number), message in ids.items():
        rows = db.execute("SELECT lines FROM messages.attempt_log WHERE message_id = %s", [message]).fetchall()
        said = [line.rpartition(": ")[2] for (lines,) in rows for line in lines.split("\n")]
        expected = {"first": [f"first {number}", f"first {number} again"], "second": [f"second {number}"], "silent": []}
        assert said == expected[name]


def test_two_workers_share_the_work_of_one_process(database: Database, db: psycopg.Connection[Any]) -> None:
    async def main() -> dict[str, int]:
        both = asyncio.Barrier(2)
        names: dict[str, int] = {}

        def handler(name: str) -> Callable[[object], Any]:
            async def handle(payload: object) -> None:
                await both.wait()
                names[name] = names.get(name, 0) + 1

            return handle

        async with (
            Worker(database.dsn, handlers={"orders": handler("first")}, concurrency=1, prefetch=0) as one,
            Worker(database.dsn, handlers={"orders": handler("second")}, concurrency=1, prefetch=0) as two,
        ):
            assert one.name != two.name
            for _ in range(4):
                publish(db, "orders")
            await until(lambda: sum(names.values()) == 4)
        return names

    assert asyncio.run(main()) == {"first": 2, "second": 2}


def test_blocking_code_runs_it_beside_itself(database: Database, db: psycopg.Connection[Any]) -> None:
    done = threading.Event()

    def handle(payload: object) -> None:
        done.set()

    with Worker(database.dsn, handlers={"orders": handle}) as worker:
        message_id = int(publish(db, "orders"))
        assert done.wait(WITHIN_S)
        assert worker.is_running
    assert state_of(db, message_id) == ("success",)
    assert not worker.is_running


def test_a_stopped_worker_can_be_started_again(database: Database, db: psycopg.Connection[Any]) -> None:
    handled = threading.Semaphore(0)
    worker = Worker(database.dsn, handlers={"orders": lambda payload: handled.release()})
    for _ in range(2):
        with worker:
            publish(db, "orders")
            assert handled.acquire(timeout=WITHIN_S)


def test_a_worker_runs_once_at_a_time(database: Database) -> None:
    async def main() -> None:
        async with Worker(database.dsn, handlers={"orders": lambda payload: None}) as worker:
            with pytest.raises(RuntimeError, match="runs already"):
                await worker.start()
            assert worker.is_running

    asyncio.run(main())


@pytest.mark.long
def test_a_stop_with_less_time_hastens_a_drain_from_outside(
    database: Database, db: psycopg.Connection[Any], eventually: Callable[..., Any]
) -> None:
    begun = threading.Event()

    async def handle(payload: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def main() -> None:
        worker = Worker(database.dsn, handlers={"orders": handle}, shutdown_timeout="1h")
        await worker.start()
        publish(db, "orders")
        assert await asyncio.to_thread(begun.wait, WITHIN_S)
        drain = "SELECT messages.drain_worker(%s)"
        await asyncio.to_thread(eventually, lambda: db.execute(drain, [worker.name]).fetchone() == (True,))
        requested = worker._service.shutdown.requested  # type: ignore[union-attr]
        await asyncio.wait_for(requested.wait(), WITHIN_S)
        await asyncio.wait_for(worker.stop(timeout=0), WITHIN_S)

    asyncio.run(main())


def test_a_thread_that_hangs_does_not_hold_the_stop(database: Database, db: psycopg.Connection[Any]) -> None:
    begun, gate = threading.Event(), threading.Event()

    def handle(payload: object) -> None:
        begun.set()
        gate.wait(WITHIN_S)

    try:
        with Worker(database.dsn, handlers={"orders": handle}, shutdown_timeout="0s") as worker:
            message_id = int(publish(db, "orders"))
            assert begun.wait(WITHIN_S)
        assert not gate.is_set()
        assert not worker.is_running
        assert state_of(db, message_id) == (None, 0)
    finally:
        gate.set()


@pytest.mark.parametrize("start", [lambda worker: asyncio.run(worker.run()), lambda worker: worker.__enter__()])
class TestStart:
    def test_without_a_server_says_so(self, start: Callable[[Worker], None]) -> None:
        with pytest.raises(DatabaseUnreachable, match="no connection"):
            start(Worker("host=/nowhere dbname=none", handlers={"orders": print}))

    def test_without_the_schema_says_so(self, start: Callable[[Worker], None], server: Postgres) -> None:
        with server.new_database() as empty, pytest.raises(SchemaMismatch, match="pgrouse migrate"):
            start(Worker(empty.dsn, handlers={"orders": lambda payload: None}))

    def test_without_rights_says_so(self, start: Callable[[Worker], None], database: Database) -> None:
        role = f"stranger_{database.name}"
        conn = database.connect()
        conn.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            with pytest.raises(PgrouseError, match="permission denied"):
                start(Worker(database.server.dsn(database.name, role), handlers={"orders": lambda payload: None}))
        finally:
            conn.execute(f"DROP ROLE {role}".encode())

    def test_without_a_handler_says_so(self, start: Callable[[Worker], None], database: Database) -> None:
        with pytest.raises(ConfigError, match="there is no handler"):
            start(Worker(database.dsn))

    def test_with_a_wrong_option_names_it(self, start: Callable[[Worker], None], database: Database) -> None:
        with pytest.raises(ConfigError, match=r"argument concurrency: worker\.concurrency"):
            start(Worker(database.dsn, handlers={"orders": lambda payload: None}, concurrency=0))


def test_a_bug_in_a_loop_is_raised_and_does_not_end_the_process(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: Listener) -> float:
        raise ZeroDivisionError

    async def main() -> None:
        monkeypatch.setattr(Listener, "step", fail)
        with suppress(ExceptionGroup):
            async with Worker(database.dsn, handlers={"orders": lambda payload: None}) as worker:
                await until(lambda: not worker.is_running)
        with pytest.raises(ExceptionGroup) as raised:
            await worker.wait()
        assert raised.group_contains(ZeroDivisionError)

    asyncio.run(main())


LIFESPANS = """
from contextlib import asynccontextmanager, contextmanager

steps = []


@asynccontextmanager
async def sound():
    steps.append("opened")
    yield 7
    steps.append("closed")


@contextmanager
def broken():
    raise ConnectionError("no redis")
    yield
"""


@pytest.mark.parametrize("lifespan", ["sound", "broken"])
def test_a_lifespan_opens_and_closes_with_the_worker(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lifespan: str
) -> None:
    name = f"shared_by_worker_{lifespan}"
    (tmp_path / f"{name}.py").write_text(LIFESPANS)
    (tmp_path / "pgrouse.toml").write_text(f'[handlers]\nlifespan = "{name}:{lifespan}"\n')
    monkeypatch.syspath_prepend(tmp_path)
    got: list[Any] = []
    handled = threading.Event()

    def handle(payload: Any, ctx: Context[int]) -> None:
        got.append(ctx.resources)
        handled.set()

    def work() -> None:
        with Worker(tmp_path / "pgrouse.toml", dsn=database.dsn, handlers={"orders": handle}):
            with psycopg.connect(database.dsn, autocommit=True) as conn:
                publish(conn, "orders")
            assert handled.wait(WITHIN_S)

    if lifespan == "broken":
        with pytest.raises(LifespanFailed, match="ConnectionError: no redis"):
            work()
    else:
        work()
        assert (got, sys.modules[name].steps) == ([7], ["opened", "closed"])


SCRIPT = """
import asyncio, os, sys

import psycopg
from pgrouse import Waiter, Worker, publish

print("started", flush=True)
dsn = os.environ["PGROUSE_DSN"]


async def main():
    with psycopg.connect(dsn, autocommit=True) as conn:
        message_id = publish(conn, "job", [1, 2])
    async with Worker("pgrouse.toml"), Waiter(dsn) as waiter:
        print((await waiter.ended(message_id, 60)).output)


asyncio.run(main())
"""


def test_a_script_is_not_run_again_in_the_processes_of_its_handlers(database: Database, tmp_path: Path) -> None:
    """It needs no guard: a process imports the module of its handler, and nothing of the script."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "summing.py").write_text("import sys\n\ndef work(payload):\n    return [sum(payload), sys.argv[0]]\n")
    (tmp_path / "pgrouse.toml").write_text('[topics.job]\nhandler = "summing:work"\nisolation = "process"\n')
    # A module of the folder in which it runs is not imported instead of one of Python.
    (tmp_path / "multiprocessing.py").write_text("raise SystemExit('not this one')\n")
    command = [sys.executable, "-P", "-c", "import runpy; runpy.run_path('script.py', run_name='__main__')"]
    env = {**os.environ, "PGROUSE_DSN": database.dsn}

    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120)

    lines = [line for line in done.stdout.splitlines() if line == "started" or line.startswith("[")]
    assert lines == ["started", "[3, 'script.py']"], done.stdout + done.stderr
