"""The types of publish on each kind of connection: `./go check` reads this file, and it is never run.

An unneeded ignore is an error: each of them shows that a forgotten `await` is found.
"""

from __future__ import annotations

from typing import Any, assert_type

import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from pgrouse import NewMessage, Published, publish, publish_many
from pgrouse.publishing.drivers.connection_types import AsyncpgConnection, DjangoConnection
from pgrouse.publishing.published import PublishedMany
from pgrouse.testing import assert_not_published, assert_published, published

MANY: list[NewMessage] = []


async def awaited(
    psycopgs: psycopg.AsyncConnection[object],
    cursor: psycopg.AsyncCursor[object],
    connection: AsyncConnection,
    session: AsyncSession,
    scoped: async_scoped_session[AsyncSession],
    asyncpgs: AsyncpgConnection,
) -> None:
    assert_type(await publish(psycopgs, "t"), Published)
    assert_type(await publish(cursor, "t"), Published)
    assert_type(await publish(connection, "t"), Published)
    assert_type(await publish(session, "t"), Published)
    assert_type(await publish(scoped, "t"), Published)
    assert_type(await publish(asyncpgs, "t"), Published)
    assert_type(await publish_many(session, MANY), PublishedMany)
    assert_type(await publish_many(asyncpgs, MANY, returning=True), list[Published])


async def forgotten(
    psycopgs: psycopg.AsyncConnection[object],
    connection: AsyncConnection,
    session: AsyncSession,
    scoped: async_scoped_session[AsyncSession],
    asyncpgs: AsyncpgConnection,
) -> None:
    publish(psycopgs, "t")  # type: ignore[unused-coroutine]
    publish(connection, "t")  # type: ignore[unused-coroutine]
    publish(session, "t")  # type: ignore[unused-coroutine]
    publish(scoped, "t")  # type: ignore[unused-coroutine]
    publish(asyncpgs, "t")  # type: ignore[unused-coroutine]
    publish_many(psycopgs, MANY)  # type: ignore[unused-coroutine]
    publish_many(session, MANY)  # type: ignore[unused-coroutine]
    publish_many(session, MANY, returning=True)  # type: ignore[unused-coroutine]


def blocking(
    psycopgs: psycopg.Connection[object],
    cursor: psycopg.Cursor[object],
    connection: sqlalchemy.Connection,
    session: Session,
    scoped: scoped_session[Session],
    django: DjangoConnection,
) -> None:
    assert_type(publish(psycopgs, "t"), Published)
    assert_type(publish(cursor, "t"), Published)
    assert_type(publish(connection, "t"), Published)
    assert_type(publish(session, "t"), Published)
    assert_type(publish(scoped, "t"), Published)
    assert_type(publish(django, "t"), Published)
    assert_type(publish_many(session, MANY), PublishedMany)
    assert_type(publish_many(session, MANY, returning=True), list[Published])


def in_tests(psycopgs: psycopg.Connection[object], session: Session) -> None:
    assert_type(published(psycopgs, "t"), list[dict[str, Any]])
    assert_type(assert_published(session, "t", {"id": 1}, count=1), list[dict[str, Any]])
    assert_type(assert_not_published(session, "t"), list[dict[str, Any]])
    published(7)  # type: ignore[call-overload]


async def in_tests_awaited(session: AsyncSession) -> None:
    assert_type(await published(session, "t"), list[dict[str, Any]])
    assert_type(await assert_published(session, "t"), list[dict[str, Any]])
    published(session, "t")  # type: ignore[unused-coroutine]
    assert_published(session, "t")  # type: ignore[unused-coroutine]
    assert_not_published(session, "t")  # type: ignore[unused-coroutine]
