"""Which transactions of a daemon wait for the disk: those that settle a message."""

from __future__ import annotations

import asyncio

import pytest
from psycopg import AsyncConnection

from pgrouse.client.settlement import SettleKind, Settlement
from pgrouse.client.worker_client import ClaimRequest, WorkerClient
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
