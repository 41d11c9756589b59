"""Measures what the tests of an application cost: `python -m bench.testing`, from the checkout.

A test publishes one message, has it processed by a handler, and looks at the result. Beside it stands the same test on
the imitations in memory of other queues, if these are installed. docs/testing.md shows the figures.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import psycopg
from bench import usage

from pgrouse import devdb, publish, testing
from pgrouse.devdb import postmaster

TESTS = 20
# The server of this program alone: it is removed before the first start.
NAME = "testing-measured"
Test = Callable[[], object]


def double(payload: int) -> int:
    """The handler."""
    return payload * 2


def perform() -> None:
    """A handler is called without a database."""
    assert testing.perform(double, 21).output == 42


def drain(conn: psycopg.Connection) -> None:
    """A message is published and processed on a connection."""
    publish(conn, "double", 21)
    (attempt,) = testing.drain(conn, {"double": double})
    assert attempt.output == 42


def rolled_back(conn: psycopg.Connection) -> None:
    """The same, undone at the end of the test."""
    drain(conn)
    conn.rollback()


def in_own_database(template: testing.DatabaseTemplate) -> None:
    """The same, in a database that is created and dropped."""
    with template.copy() as dsn, psycopg.connect(dsn) as conn:
        drain(conn)
        conn.commit()


async def procrastinate() -> None:
    """Procrastinate's InMemoryConnector."""
    from procrastinate import App  # noqa: PLC0415 - one of those that may be installed
    from procrastinate.testing import InMemoryConnector  # noqa: PLC0415

    app = App(connector=InMemoryConnector())
    done: list[int] = []

    @app.task(name="double")
    def handler(n: int) -> None:
        done.append(n * 2)

    async with app.open_async():
        await handler.defer_async(n=21)
        await app.run_worker_async(wait=False, install_signal_handlers=False)
    assert done == [42]


async def pgqueuer() -> None:
    """PgQueuer's in-memory backend."""
    from pgqueuer import PgQueuer  # noqa: PLC0415
    from pgqueuer.types import QueueExecutionMode  # noqa: PLC0415

    queue = PgQueuer.in_memory()
    done: list[int] = []

    @queue.entrypoint("double")
    async def handler(job: Any) -> None:
        done.append(int(job.payload) * 2)

    await queue.qm.queries.enqueue("double", b"21")
    await queue.qm.run(mode=QueueExecutionMode.drain)
    assert done == [42]


async def taskiq() -> None:
    """taskiq's InMemoryBroker."""
    from taskiq import InMemoryBroker  # noqa: PLC0415

    broker = InMemoryBroker()

    @broker.task
    async def handler(n: int) -> int:
        return n * 2

    await broker.startup()
    result = await (await handler.kiq(21)).wait_result(timeout=10)
    await broker.shutdown()
    assert result.return_value == 42


PEERS: list[Callable[[], Awaitable[None]]] = [procrastinate, pgqueuer, taskiq]


def main() -> None:
    """Print how long each takes, and its processor time: a start once, a test as the median and the mean of many."""
    module = sys.modules["pgrouse.testing.template"]
    module.NAME = NAME  # type: ignore[attr-defined]
    settings = module.SETTINGS  # type: ignore[attr-defined]
    server = devdb.find(NAME, database="postgres", settings=settings, in_memory=True)
    assert isinstance(server, devdb.PrivateServer)
    server.remove()
    for what in ("the first start on a machine", "a later start"):
        with ExitStack() as stack:
            began, used = time.perf_counter(), cpu_s(server)
            template = stack.enter_context(testing.template())
            taken, used = time.perf_counter() - began, cpu_s(server) - used
            print(f"{what}, with a template: {taken:.2f} s, {used:.2f} s of a processor", flush=True)
            if what == "a later start":
                measure(server, template)
    server.remove()


def measure(server: devdb.PrivateServer, template: testing.DatabaseTemplate) -> None:
    """Print the tests."""
    show(server, "a test in a database of its own", lambda: in_own_database(template))
    with template.copy() as dsn, psycopg.connect(dsn) as conn:
        show(server, "a test that is rolled back", lambda: rolled_back(conn))
    show(server, "a handler without a database", perform)
    for peer in PEERS:
        try:
            show(server, str(peer.__doc__).rstrip("."), lambda peer=peer: asyncio.run(peer()))  # type: ignore[misc]
        except ImportError:
            print(f"{peer.__name__} is not installed")


def show(server: devdb.PrivateServer, what: str, test: Test) -> None:
    """Run a test many times, after a first time that imports modules."""
    test()
    taken = []
    used = cpu_s(server)
    for _ in range(TESTS):
        began = time.perf_counter()
        test()
        taken.append((time.perf_counter() - began) * 1000)
    used = (cpu_s(server) - used) / TESTS * 1000
    print(f"{what}: {statistics.median(taken):.1f} ms, {used:.1f} ms of a processor", flush=True)


def cpu_s(server: devdb.PrivateServer) -> float:
    """Return the processor time of this process, of the programs that it ran, and of the server."""
    found = postmaster.pid(server.data)
    return time.process_time() + usage.children_cpu_s() + (usage.family_cpu_s(found) if found else 0)


if __name__ == "__main__":
    main()
