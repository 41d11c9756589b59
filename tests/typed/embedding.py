"""The types of what applications contain: `./go check` reads this file, and it is never run.

An unneeded ignore is an error: each of them shows that a mistake is found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import psycopg
import sqlalchemy
from fastapi import FastAPI, Request
from sqlalchemy.orm import Session

from pgrouse import Worker, migrate
from pgrouse.publishing.drivers.connection_types import DjangoConnection
from pgrouse.testing import DatabaseUrl, database
from pgrouse.web import Caller, Role, app


def double(payload: int) -> int:
    return 2 * payload


async def a_worker(file: Path) -> None:
    async with Worker(file, modules=["shop.jobs"], concurrency=10, shutdown_timeout="5s") as worker:
        assert_type(worker.is_running, bool)
        assert_type(worker.status(), dict[str, Any])
    await Worker("postgresql://", handlers={"double": double}).run()
    with Worker(dsn="postgresql://", poll_interval=0.5) as beside:
        assert_type(beside, Worker)


async def mistakes(file: Path) -> None:
    Worker(file, concurency=10)  # type: ignore[call-arg]
    Worker(file, concurrency="10")  # type: ignore[arg-type]
    Worker(file, modules=7)  # type: ignore[arg-type]
    Worker(file).run()  # type: ignore[unused-coroutine]
    with Worker(file) as worker:
        worker.stop()  # type: ignore[unused-coroutine]
        await worker.stop(timeout="5s")  # type: ignore[arg-type]


def a_migration(
    psycopgs: psycopg.Connection[object],
    connection: sqlalchemy.Connection,
    session: Session,
    django: DjangoConnection,
) -> None:
    assert_type(migrate(psycopgs), list[str])
    assert_type(migrate("postgresql://"), list[str])
    migrate(connection)
    migrate(session)
    migrate(django)


def no_migration(psycopgs: psycopg.AsyncConnection[object]) -> None:
    migrate(psycopgs)  # type: ignore[arg-type]
    migrate(7)  # type: ignore[arg-type]


async def known(request: Request) -> Caller | None:
    return Caller("ada", frozenset({Role.OPERATOR})) if request.headers.get("x-user") else None


def a_mount(outer: FastAPI) -> None:
    outer.mount("/queue", app("pgrouse.toml", authenticate=known, allowed_hosts=["shop.example.com"]))
    app(authenticate=lambda request: None)
    app(authenticate=lambda request: "ada")  # type: ignore[arg-type, return-value]


def a_database() -> None:
    with database() as url:
        assert_type(url, DatabaseUrl)
        assert_type(url.url("postgresql+asyncpg"), str)
