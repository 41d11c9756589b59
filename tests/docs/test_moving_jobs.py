"""docs/coming-from.md: its statements move what waits in Procrastinate and PgQueuer, as these packages store it."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import procrastinate
import psycopg
import pytest
from pgqueuer.queries import EntrypointExecutionParameter, Queries

from tests.docs.page import Page
from tests.server.postgres import Database

PAGE = Page("docs/coming-from.md")
LATER = datetime(2099, 1, 31, 12, tzinfo=UTC)
MOVED = "SELECT topic, payload, channel, key, priority, available_at FROM messages.message ORDER BY id"
ORDERS = [{"id": 7, "email": "ada@example.com"}, {"id": 8, "email": "eve@example.com"}]


def statement(queue: str) -> str:
    [found] = [block.text for block in PAGE.blocks if block.kind == f"sql {queue}"]
    return found


def moved(database: Database, queue: str) -> list[tuple[Any, ...]]:
    """Run the statement of the page; return what was published."""
    with database.connect() as conn:
        conn.execute(statement(queue))
        return conn.execute(MOVED).fetchall()


async def defer_with_procrastinate(dsn: str) -> int:
    """Defer the jobs of the page, and let a worker fetch the first; return its id."""
    arguments = [{"order_id": order["id"], "email": order["email"]} for order in ORDERS]
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn))

    @app.task(name="jobs.send_receipt")
    async def send_receipt(order_id: int, email: str) -> None:
        raise AssertionError(order_id, email)

    @app.task(name="jobs.other")
    async def other() -> None:
        raise AssertionError

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        fetched: int = await send_receipt.defer_async(order_id=1, email="")
        worker = await app.job_manager.register_worker()
        assert await app.job_manager.fetch_job(queues=None, worker_id=worker)
        await send_receipt.configure(lock="ada", queueing_lock="order 7", priority=3).defer_async(**arguments[0])
        await send_receipt.configure(schedule_at=LATER, priority=-20).defer_async(**arguments[1])
        await other.defer_async()
    return fetched


def test_what_waits_in_procrastinate_is_moved(database: Database) -> None:
    fetched = asyncio.run(defer_with_procrastinate(database.dsn))

    first, second = moved(database, "procrastinate")

    assert first[:-1] == ("orders.created", ORDERS[0], "ada", "order 7", 2)
    assert second == ("orders.created", ORDERS[1], None, None, 9, LATER)
    with database.connect() as conn:
        left = conn.execute("SELECT id, task_name, status::text FROM procrastinate_jobs ORDER BY id").fetchall()
    assert left == [(fetched, "jobs.send_receipt", "doing"), (fetched + 3, "jobs.other", "todo")]


async def enqueue_with_pgqueuer(dsn: str) -> int:
    """Enqueue the jobs of the page, and let a worker fetch the first; return its id."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        queries = Queries.from_psycopg_connection(conn)
        await queries.install()
        await queries.enqueue("send_receipt", b"{}")
        worker = {"send_receipt": EntrypointExecutionParameter(0)}
        [job] = await queries.dequeue(1, worker, uuid.uuid4(), None, timedelta(minutes=1))
        payloads = [json.dumps(order).encode() for order in ORDERS]
        await queries.enqueue("send_receipt", payloads[0], priority=3, dedupe_key="order 7")
        await queries.enqueue("send_receipt", payloads[1], execute_after=timedelta(days=9))
        await queries.enqueue("other", None)
        return int(job.id)


def test_what_waits_in_pgqueuer_is_moved(database: Database) -> None:
    fetched = asyncio.run(enqueue_with_pgqueuer(database.dsn))

    first, second = moved(database, "pgqueuer")

    assert first[:-1] == ("orders.created", ORDERS[0], None, "order 7", 2)
    assert second[:-1] == ("orders.created", ORDERS[1], None, None, 5)
    assert second[-1] - first[-1] > timedelta(days=8)
    with database.connect() as conn:
        left = conn.execute("SELECT id, entrypoint, status::text FROM pgqueuer ORDER BY id").fetchall()
    assert left == [(fetched, "send_receipt", "picked"), (fetched + 3, "other", "queued")]


@pytest.mark.parametrize("queue", ["procrastinate", "pgqueuer"])
def test_a_rollback_leaves_everything_where_it_was(database: Database, queue: str) -> None:
    table = {"procrastinate": "procrastinate_jobs", "pgqueuer": "pgqueuer"}[queue]
    defer = {"procrastinate": defer_with_procrastinate, "pgqueuer": enqueue_with_pgqueuer}[queue]
    asyncio.run(defer(database.dsn))
    with database.connect() as conn, conn.transaction(force_rollback=True):
        assert conn.execute(statement(queue)).rowcount == 2

    with database.connect() as conn:
        assert conn.execute(f"SELECT count(*) FROM {table}").fetchone() == (4,)
        assert conn.execute(MOVED).fetchall() == []
