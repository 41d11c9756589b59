"""Every function that changes several messages locks their rows in the order of their ids.

Two sessions cannot deadlock.
"""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.client.processing.worker_client import ClaimRequest, WorkerClient
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Background, Queue

pytestmark = pytest.mark.every_server

SETTLES = {
    "complete": [],
    "fail": [["boom"] * 2],
    "reject": [["boom"] * 2],
    "retry": [["boom"] * 2],
    "defer": [["1 s"] * 2],
    "release": [],
}


@pytest.mark.parametrize("settle", list(SETTLES))
def test_a_settle_in_the_order_of_the_claim_and_a_cancel_never_deadlock(
    queue: Queue, other: Queue, background: Background, settle: str
) -> None:
    queue.policy(max_attempts=5)
    later, sooner = queue.publish(wait="-1 s"), queue.publish(wait="-2 s")
    claimed = queue.claim()
    assert [c.id for c in claimed] == [sooner, later]

    with other.conn.transaction():
        other.rows("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [later])
        settling = background.start_blocked(queue, queue.settle, settle, claimed, *SETTLES[settle])
        # If the settle began with the message that was available sooner, this would be a deadlock.
        other.rows("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [sooner])

    assert settling.result(timeout=60) == []


def test_a_worker_that_settles_in_several_ways_and_a_cancel_never_deadlock(
    database: Database, queue: Queue, other: Queue, background: Background
) -> None:
    queue.policy(max_attempts=5)
    failed, *succeeded = queue.publish_many(3)
    claimed = {each.id: each for each in asyncio.run(_claim(database.dsn))}
    settlements = [Settlement(claimed[each], SettleKind.COMPLETE) for each in succeeded]
    settlements.append(Settlement(claimed[failed], SettleKind.RETRY, error="boom"))
    with other.conn.transaction():
        other.rows("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [succeeded[1]])
        settling = background.start(lambda: asyncio.run(_settle(database.dsn, settlements)))
        eventually(lambda: background.watcher.execute(SETTLER_WAITS).fetchone() == (True,))
        # It locks the message that failed, and waits for the first that succeeded.
        cancelling = background.start_blocked(queue, queue.call, "cancel", [failed, succeeded[0]])

    assert cancelling.result(timeout=60) == [failed]
    assert settling.result(timeout=60) == [failed]


SETTLER_WAITS = """
    SELECT cardinality(pg_blocking_pids(pid)) > 0 FROM pg_stat_activity WHERE application_name = 'settler'
"""


async def _claim(dsn: str) -> list[Message]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        return (await WorkerClient(conn, "w").settle_and_claim([], ClaimRequest(["t"], 10))).claimed


async def _settle(dsn: str, settlements: list[Settlement]) -> list[int]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True, application_name="settler") as conn:
        return (await WorkerClient(conn, "w").settle_and_claim(settlements, None)).lost


@pytest.mark.parametrize("function", ["cancel", "skip", "retry_now"])
def test_an_operation_on_messages_in_any_order_and_another_in_that_of_their_ids_never_deadlock(
    queue: Queue, other: Queue, background: Background, function: str
) -> None:
    first, second = queue.publish_many(2, wait="1 hour")

    with other.conn.transaction():
        other.rows("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [first])
        operating = background.start_blocked(queue, queue.call, function, [second, first])
        other.rows("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [second])

    assert sorted(operating.result(timeout=60)) == [first, second]


def test_copies_for_one_subscriber_take_keys_in_one_order_whatever_order_their_originals_have(
    queue: Queue, other: Queue, background: Background
) -> None:
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 's')")
    publish = (
        "INSERT INTO messages.message (topic, key, payload) SELECT 't', k, '1' FROM unnest(%s::text[]) AS k "
        "RETURNING key"
    )

    with other.conn.transaction():
        other.publish("s", key="a")
        publishing = background.start_blocked(queue, queue.rows, publish, [["b", "a"]])
        # If the copies were made in the order of their originals, this would be a deadlock.
        other.publish("s", key="b")
        other.conn.execute("DELETE FROM messages.message WHERE topic = 's'")

    assert len(publishing.result(timeout=60)) == 2
    assert queue.rows("SELECT key FROM messages.message WHERE topic = 's' ORDER BY id") == [("b",), ("a",)]
