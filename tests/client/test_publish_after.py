"""Publishing messages that depend on others, from Python."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from pgrouse import InvalidMessage, PredecessorNotFound, publish
from tests.server.postgres import Database

Connection = psycopg.Connection[Any]


def edges(db: Connection) -> list[tuple[Any, ...]]:
    return db.execute("SELECT predecessor_id, successor_id FROM messages.dependency ORDER BY 2, 1").fetchall()


def test_a_result_of_publish_is_accepted_as_a_dependency(conn: Connection, db: Connection) -> None:
    first = publish(conn, "t")
    second = publish(conn, "t", after=[first])
    third = publish(conn, "t", after=(each for each in [first, second]), after_failed="run", key="k")
    publish(conn, "t", after=[])
    conn.commit()

    assert (second.outcome, third.outcome) == ("inserted", "inserted")
    assert edges(db) == [(first, second), (first, third), (second, third)]
    assert db.execute("SELECT after_failed FROM messages.blocked_message ORDER BY id").fetchall() == [
        ("hold",),
        ("run",),
    ]


def test_dependencies_work_on_an_async_connection(database: Database, db: Connection) -> None:
    async def chain() -> list[int]:
        async with await psycopg.AsyncConnection.connect(database.dsn) as conn:
            first = await publish(conn, "t")
            return [first, await publish(conn, "t", after=[first])]

    first, second = asyncio.run(chain())

    assert edges(db) == [(first, second)]


def test_a_missing_dependency_has_its_own_error(conn: Connection) -> None:
    with pytest.raises(PredecessorNotFound, match="there is no message 4711 to come after: it was never published"):
        publish(conn, "t", after=[4711])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"after": 7}, "must be a list of ids"),
        ({"after": "7"}, "must be a list of ids"),
        ({"after": [0]}, "0 is one that was dropped"),
        ({"after": [True]}, "no id of a message"),
        ({"after": ["7"]}, "no id of a message"),
        ({"after": [2**63]}, "no id of a message"),
        ({"after": range(1, 100_002)}, "100,000 is the limit"),
        ({"after": [1], "after_failed": "wait"}, "hold, cancel, run"),
        ({"after": [1], "key": "k", "on_conflict": "append"}, "keeps its place"),
    ],
)
def test_an_invalid_dependency_is_refused_before_the_statement(
    conn: Connection, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidMessage, match=says):
        publish(conn, "t", **options)

    assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
