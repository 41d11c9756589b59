"""docs/coming-from.md: the jobs of other queues, run by their packages as the page has them."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
from collections.abc import Iterator
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import celery
import dramatiq
import fakeredis
import pgqueuer
import procrastinate
import psycopg
import pytest
import rq
from dramatiq.brokers.stub import StubBroker
from pgqueuer.types import QueueExecutionMode

from pgrouse.database.install.schema import sql_root
from tests.docs.page import Page
from tests.server.postgres import Database

PAGE = Page("docs/coming-from.md")
SENT = [("receipt for order 7", "ada@example.com")]


class Mail:
    """The connection with which the jobs send mails."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    def send(self, text: str, to: str) -> None:
        self.sent.append((text, to))


class AsyncMail(Mail):
    """The same, for a job that awaits it."""

    async def send(self, text: str, to: str) -> None:  # type: ignore[override]
        super().send(text, to)


def code(section: str, nth: int = 0) -> CodeType:
    block = [block for block in PAGE.section(section).blocks if block.kind == "python"][nth]
    return compile(block.text, PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


async def run(program: CodeType, names: dict[str, Any]) -> None:
    """Run a block that awaits."""
    await eval(program, names)


@pytest.fixture
def jobs() -> Iterator[ModuleType]:
    """A module for the jobs of a queue that finds them by their names."""
    module = sys.modules["jobs_of_others"] = ModuleType("jobs_of_others")
    yield module
    del sys.modules["jobs_of_others"]


def test_the_job_of_celery_runs() -> None:
    app = celery.Celery(set_as_current=False, broker="memory://", backend="cache+memory://")
    app.conf.task_always_eager = True
    mail = Mail()

    exec(
        code("Celery"),
        {"app": app, "mail": mail, "transaction": SimpleNamespace(on_commit=lambda call: call()), "__name__": "jobs"},
    )

    assert mail.sent == SENT


def test_the_job_of_procrastinate_runs(database: Database) -> None:
    mail = AsyncMail()
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=database.dsn))

    async def work() -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            names = {"app": app, "mail": mail, "RetryStrategy": procrastinate.RetryStrategy, "__name__": "jobs"}
            await run(code("Procrastinate"), names)
            await app.run_worker_async(queues=["mail"], wait=False, install_signal_handlers=False)

    asyncio.run(work())

    assert mail.sent == SENT


@pytest.mark.long
def test_the_job_of_pgqueuer_runs(database: Database) -> None:
    mail = AsyncMail()

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as conn:
            pgq = pgqueuer.PgQueuer.from_psycopg_connection(conn)
            queries = pgqueuer.Queries.from_psycopg_connection(conn)
            await queries.install()
            names = {"pgq": pgq, "queries": queries, "mail": mail, "json": json, "Job": pgqueuer.Job}
            await run(code("PgQueuer"), names)
            await pgq.run(mode=QueueExecutionMode.drain)

    asyncio.run(work())

    assert mail.sent == SENT


def test_the_job_of_rq_runs(jobs: ModuleType) -> None:
    mail = Mail()
    queue = rq.Queue(connection=fakeredis.FakeStrictRedis(), is_async=False)
    vars(jobs).update(queue=queue, mail=mail, Retry=rq.Retry)

    exec(code("RQ and Dramatiq", 0), vars(jobs))

    assert mail.sent == SENT


def test_the_job_of_dramatiq_runs() -> None:
    mail = Mail()
    broker = StubBroker()
    dramatiq.set_broker(broker)
    worker = dramatiq.Worker(broker, worker_timeout=100)
    worker.start()
    try:
        exec(code("RQ and Dramatiq", 1), {"dramatiq": dramatiq, "mail": mail, "__name__": "jobs"})
        broker.join("default", timeout=60_000)
        worker.join()
    finally:
        worker.stop()

    assert mail.sent == SENT


def test_the_statements_of_pgmq_run(database: Database) -> None:
    [block] = [block for block in PAGE.section("pgmq").blocks if block.kind == "sql"]
    with database.connect() as conn:
        conn.execute((sql_root() / "pgmq.sql").read_bytes())
        for statement in block.text.split("\n"):
            conn.execute(statement.encode())

        assert conn.execute("SELECT topic, result FROM messages.message_archive").fetchall() == [
            ("receipts", "success")
        ]
