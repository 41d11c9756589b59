"""The types of `pgrouse.testing`: `./go check` reads this file, and nothing runs it.

An ignore that is not needed is an error: each of them is a mistake that is detected.
"""

from __future__ import annotations

from typing import Any, assert_type

import psycopg
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from pgrouse.contrib.django.testing import run_tasks
from pgrouse.testing import Attempt, DatabaseTemplate, DatabaseUrl, clean, database, drain, perform, template


def charge(order: int) -> int:
    return order


def blocking(conn: psycopg.Connection[Any], session: Session) -> None:
    assert_type(drain(conn, {"charge": charge}), list[Attempt])
    assert_type(drain(session, {"charge": charge}, resources=7, limit=10), list[Attempt])
    assert_type(run_tasks(), list[Attempt])
    clean(conn, messages_only=True)
    assert_type(perform(charge, 7).outcome, str)
    assert_type(drain("postgresql://", {"charge": charge})[0], Attempt)
    print(perform(charge, 7).outcom)  # type: ignore[attr-defined]
    drain(7, {"charge": charge})  # type: ignore[call-overload]
    drain(conn, {"charge": charge}, limits=10)  # type: ignore[call-overload]


async def awaited(conn: psycopg.AsyncConnection[Any], session: AsyncSession) -> None:
    assert_type(await drain(conn, {"charge": charge}), list[Attempt])
    assert_type(await drain(session, {"charge": charge}, resources=7), list[Attempt])
    assert_type(await perform(charge, 7), Attempt)
    assert_type(await drain("postgresql://", {"charge": charge}), list[Attempt])
    drain(session, {"charge": charge})  # type: ignore[unused-coroutine]


def databases() -> None:
    with database() as url:
        assert_type(url, DatabaseUrl)
    with template("postgresql://") as made, made.copy() as copied:
        assert_type(made, DatabaseTemplate)
        assert_type(made.dsn.url("postgresql+asyncpg"), str)
        assert_type(copied, DatabaseUrl)
