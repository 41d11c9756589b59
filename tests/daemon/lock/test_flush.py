"""Which transactions of a daemon wait for the disk: those that settle a message."""

from __future__ import annotations

import asyncio

import pytest
from psycopg import AsyncConnection

from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.client.processing.worker_client import ClaimRequest, WorkerClient
from tests.server.postgres import Database

# The value of the setting when the transaction commits.
WATCH = """
    CREATE TABLE public.commits (what text, synchronous_commit text);
    CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
      INSERT INTO public.commits VALUES (TG_TABLE_NAME || ' ' || TG_OP, current_setting('synchronous_commit'));
      RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER note AFTER UPDATE OR DELETE ON messages.message
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note();
    CREATE CONSTRAINT TRIGGER note AFTER INSERT ON messages.sleeper
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note();
"""


async def claim_and_complete(dsn: str) -> None:
    async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
        client = WorkerClient(conn, "w")
        claimed = (await client.settle_and_claim([], ClaimRequest(["t"], 10), arm=(["t"], 60.0))).claimed
        await client.settle_and_claim(
            [Settlement(message, SettleKind.COMPLETE) for message in claimed], ClaimRequest(["t"], 10)
        )


@pytest.mark.parametrize(("attempts", "waits"), [(1, "on"), (2, "off")])
def test_a_settle_waits_for_the_disk_a_flag_does_not_and_a_claim_only_for_the_last_attempt(
    database: Database, attempts: int, waits: str
) -> None:
    conn = database.connect()
    conn.execute(WATCH)
    conn.execute("INSERT INTO messages.message (topic, payload, max_attempts) VALUES ('t', '1', %s)", [attempts])

    asyncio.run(claim_and_complete(database.dsn))

    commits = set(conn.execute("SELECT what, synchronous_commit FROM public.commits").fetchall())
    assert commits == {("sleeper INSERT", "off"), ("message UPDATE", waits), ("message DELETE", "on")}


async def claim_two_parts(dsn: str) -> None:
    async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
        request = ClaimRequest(["once"], 10, batches=ClaimRequest(["often"], 10))
        assert len((await WorkerClient(conn, "w").settle_and_claim([], request)).claimed) == 2


def test_the_second_claim_of_a_turn_does_not_revoke_that_the_first_one_waits_for_the_disk(database: Database) -> None:
    conn = database.connect()
    conn.execute(WATCH)
    conn.execute(
        "INSERT INTO messages.message (topic, payload, max_attempts) VALUES ('once', '1', 1), ('often', '1', 2)"
    )

    asyncio.run(claim_two_parts(database.dsn))

    assert set(conn.execute("SELECT what, synchronous_commit FROM public.commits")) == {("message UPDATE", "on")}


async def claim_alone(dsn: str) -> None:
    async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
        await WorkerClient(conn, "w").settle_and_claim([], ClaimRequest(["t"], 10))


@pytest.mark.parametrize(("attempts", "waits"), [(1, "on"), (2, "off")])
def test_a_claim_without_anything_else_waits_for_the_last_attempt_only(
    database: Database, attempts: int, waits: str
) -> None:
    conn = database.connect()
    conn.execute(WATCH)
    conn.execute("INSERT INTO messages.message (topic, payload, max_attempts) VALUES ('t', '1', %s)", [attempts])

    asyncio.run(claim_alone(database.dsn))

    assert set(conn.execute("SELECT what, synchronous_commit FROM public.commits")) == {("message UPDATE", waits)}
