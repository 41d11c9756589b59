"""Databases of other locales and encodings: what does not fit into the encoding is refused by itself.

test_settings.py shows that messages live there as usual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from psycopg import AsyncConnection

from pgrouse import Client, Waiter, Worker, migrate, publish, wait_for
from pgrouse.client.processing.settlement import LoggedLines, SettleKind, Settlement
from pgrouse.client.processing.worker_client import ClaimRequest, WorkerClient
from pgrouse.testing import drain
from tests.environments.life import Life
from tests.environments.locale_database import database_of
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue


def test_a_turkish_database_reads_capitals_in_schedules_and_searches(
    server: Postgres, life_in: Callable[[Database], Life]
) -> None:
    with database_of(server, "Turkish") as database:
        life_in(database).install()
        queue = Queue(database.connect())

        for cron in ("0 6 * * FRI", "@MIDNIGHT", "@WEEKLY", "15 SECONDS", "0 0 * APR *"):
            assert queue.rows("SELECT * FROM messages.next_ticks(%s)", [cron]), cron
        queue.publish()
        queue.settle("fail", queue.claim(), ["IOError: DISK IS FULL"])
        assert len(queue.rows("SELECT * FROM messages.find_dead(p_error => 'disk is full')")) == 1
        assert queue.call("error_fingerprint", "INVALID ID 7") == queue.call("error_fingerprint", "invalid id 8")


def test_a_text_that_does_not_fit_into_the_encoding_is_refused_and_the_others_are_published(
    server: Postgres, life_in: Callable[[Database], Life]
) -> None:
    with database_of(server, "Latin 1") as database:
        life = life_in(database)
        life.install()
        conn = database.connect()

        # An error of psycopg: the connection has the encoding of the database.
        with pytest.raises(UnicodeEncodeError, match="latin-1"):
            publish(conn, "t", {"price": "7 €"}, channel="€")
        refused = life.pgrouse("publish", "t", '"€"', "--key", "€")
        published = publish(conn, "t", {"price": "7 é"}, channel="é")
        query = "SELECT id FROM messages.find_messages(p_topic => 't', p_channel => %s) WHERE id IS NOT NULL"
        found = [conn.execute(query, [channel]).fetchall() for channel in (None, "é")]

    assert refused.code == 1
    assert "LATIN1" in refused.err
    assert found == [[(published,)]] * 2


def test_without_an_encoding_connection_strings_are_enough(server: Postgres) -> None:
    with database_of(server, "no encoding") as database:
        dsn = database.dsn

        assert migrate(dsn)
        with Client(dsn) as client, Worker(dsn, handlers={"t": str.upper}), Waiter(dsn) as waiter:
            published = client.publish("t", "ä")
            assert wait_for(dsn, published, 60).output == "Ä"
            assert waiter.wait_for(published, 60).output == "Ä"
            assert client.message(published).topic == "t"
        with Client(dsn) as client:
            client.publish("t", "ö")
        assert [each.output for each in drain(dsn, {"t": str.upper})] == ["Ö"]


def test_log_lines_that_do_not_fit_into_the_encoding_are_written_out(
    server: Postgres, life_in: Callable[[Database], Life]
) -> None:
    with database_of(server, "Latin 1") as database:
        life_in(database).install()
        queue = Queue(database.connect())
        queue.publish()
        asyncio.run(_complete_with_log(database.dsn, "7 €"))

        assert queue.value("SELECT lines FROM messages.attempt_log") == r"7 \u20ac"


async def _complete_with_log(dsn: str, text: str) -> None:
    async with await AsyncConnection.connect(dsn, autocommit=True, client_encoding="utf8") as conn:
        client = WorkerClient(conn, "w")
        (claimed,) = (await client.settle_and_claim([], ClaimRequest(["t"], 1))).claimed
        ended = Settlement(claimed, SettleKind.COMPLETE)
        await client.settle_and_claim([ended], None, logs=[LoggedLines(claimed, text, 0)])
