"""What one turn of a claim loop does: it completes, then claims, in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.client.processing.worker_client import ClaimRequest, TurnResult, UnwritableValue, WorkerClient
from tests.server.postgres import Database
from tests.sql.queue import Queue

REQUEST = ClaimRequest(["t"], 10)
Turn = Callable[..., Awaitable[TurnResult]]


def complete(messages: list[Message], output: str | None = None) -> list[Settlement]:
    return [Settlement(each, SettleKind.COMPLETE, output=output) for each in messages]


def run(dsn: str, use: Callable[[Turn], Awaitable[None]]) -> None:
    """Use the turns of a worker, each of which also claims unless it has `None` for that."""

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            client = WorkerClient(conn, "w")
            await use(lambda settlements, request=REQUEST: client.settle_and_claim(settlements, request))

    asyncio.run(main())


def test_a_turn_claims_what_its_completions_made_room_for(database: Database, queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.topic (topic, max_concurrency) VALUES ('t', 1)")
    published = queue.publish_many(2)

    async def use(turn: Turn) -> None:
        first = (await turn([])).claimed
        second = await turn(complete(first, '"done"'))
        assert [[each.id for each in got] for got in (first, second.claimed)] == [[each] for each in published]
        assert second.lost == []

    run(database.dsn, use)

    ended = queue.archived(published[0])
    assert (ended.result, ended.output) == ("success", "done")
    # In one transaction.
    claimed_by = queue.value("SELECT xmin::text FROM messages.message WHERE id = %s", published[1:])
    assert claimed_by == queue.value("SELECT archive_xid::text FROM messages.message_archive")


def test_a_turn_tells_which_completions_were_lost_and_claims(database: Database, queue: Queue) -> None:
    lost, kept = queue.publish_many(2)

    async def use(turn: Turn) -> None:
        claimed = (await turn([])).claimed
        queue.conn.execute("UPDATE messages.message SET claim_id = claim_id + 1 WHERE id = %s", [lost])
        new = queue.publish_many(1)
        got = await turn(complete(claimed))
        assert (got.lost, [each.id for each in got.claimed]) == ([lost], new)
        assert (await turn(complete(got.claimed))).claimed == []

    run(database.dsn, use)

    assert queue.ids() == [lost]
    assert queue.archived(kept).result == "success"


@pytest.mark.parametrize("kind", [SettleKind.COMPLETE, SettleKind.RELEASE])
def test_a_turn_that_only_settles_tells_what_was_lost(database: Database, queue: Queue, kind: SettleKind) -> None:
    lost, kept, new = queue.publish_many(3)

    async def use(turn: Turn) -> None:
        claimed = (await turn([], ClaimRequest(["t"], 2))).claimed
        queue.conn.execute("UPDATE messages.message SET claim_id = claim_id + 1 WHERE id = %s", [lost])
        assert await turn([Settlement(each, kind) for each in claimed], None) == TurnResult(lost=[lost])

    run(database.dsn, use)

    assert [each.id for each in queue.claim()] == ([new] if kind is SettleKind.COMPLETE else [kept, new])


def test_a_turn_whose_claim_fails_completes_nothing(database: Database, queue: Queue) -> None:
    (published,) = queue.publish_many(1)

    async def use(turn: Turn) -> None:
        claimed = (await turn([])).claimed
        queue.publish_many(1)
        queue.conn.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;"
            "CREATE TRIGGER refuse BEFORE UPDATE ON messages.message FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        with pytest.raises(psycopg.errors.RaiseException):
            await turn(complete(claimed))

    run(database.dsn, use)

    assert published in queue.ids()
    assert queue.value("SELECT count(*) FROM messages.message_archive") == 0


def test_a_turn_names_an_output_that_cannot_be_sent(database: Database, queue: Queue) -> None:
    queue.publish_many(1)

    async def use(turn: Turn) -> None:
        with pytest.raises(UnwritableValue, match="surrogates not allowed"):
            await turn(complete((await turn([])).claimed, '"\ud800"'))

    run(database.dsn, use)
