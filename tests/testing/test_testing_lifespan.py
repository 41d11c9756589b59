"""`drain` and `perform` with what handlers share, and with middleware: as in a daemon."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgrouse import Context, publish
from pgrouse.testing import drain, perform
from tests.server.postgres import Database

MODULE = """
import asyncio
from contextlib import asynccontextmanager

steps = []


@asynccontextmanager
async def lifespan():
    steps.append("opened")
    yield {"loop": asyncio.get_running_loop()}
    steps.append("closed")


async def noting(ctx, call_next):
    steps.append(f"around {ctx.topic}")
    return await call_next()


async def work(payload, ctx):
    steps.append("worked")
    assert ctx.resources.get("loop") in (None, asyncio.get_running_loop())
    return sorted(ctx.resources)
"""
CONFIG = """
[handlers]
lifespan = "shared_by_tests:lifespan"
middleware = ["shared_by_tests:noting"]
[topics.job]
handler = "shared_by_tests:work"
"""
STEPS = ["opened", "around job", "worked", "around job", "worked", "closed"]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration file with a lifespan, a middleware, and an async handler."""
    (tmp_path / "shared_by_tests.py").write_text(MODULE)
    (tmp_path / "pgrouse.toml").write_text(CONFIG)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shared_by_tests", raising=False)
    return tmp_path / "pgrouse.toml"


def steps() -> list[str]:
    return list(sys.modules["shared_by_tests"].steps)


def test_drain_opens_the_lifespan_of_a_configuration_once(database: Database, settings: Path) -> None:
    with psycopg.connect(database.dsn) as conn:
        for _ in range(2):
            publish(conn, "job", {})
        attempts = drain(conn, settings)
        conn.rollback()

    assert [each.output for each in attempts] == [["loop"]] * 2
    assert steps() == STEPS


def test_drain_on_an_event_loop_opens_it_there(database: Database, settings: Path) -> None:
    async def work() -> list[Any]:
        async with await psycopg.AsyncConnection.connect(database.dsn) as conn:
            for _ in range(2):
                await publish(conn, "job", {})
            attempts = await drain(conn, settings)
            await conn.rollback()
            return attempts

    assert [each.output for each in asyncio.run(work())] == [["loop"]] * 2
    assert steps() == STEPS


def test_resources_that_are_given_replace_the_lifespan(database: Database, settings: Path) -> None:
    with psycopg.connect(database.dsn) as conn:
        publish(conn, "job", {})
        (attempt,) = drain(conn, settings, resources={"fake": 1})
        conn.rollback()

    assert attempt.output == ["fake"]
    assert steps() == ["around job", "worked"]


def test_perform_takes_resources() -> None:
    def work(payload: Any, ctx: Context[dict[str, int]]) -> int:
        return ctx.resources["limit"]

    assert perform(work, resources={"limit": 7}).output == 7
