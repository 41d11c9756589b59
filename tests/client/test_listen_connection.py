"""The connection that listens and reconnects, and raises no error of the database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from structlog.testing import capture_logs

from pgrouse.client.call import Call, value
from pgrouse.client.connection import listening as listen_connection
from pgrouse.client.connection.database import Database as Connector
from pgrouse.client.connection.listening import ListenConnection
from pgrouse.config import config
from pgrouse.logging import events
from pgrouse.process import backoff
from tests.server.postgres import Database

NOWHERE = "host=127.0.0.1 port=1 dbname=nowhere"


class Listening:
    """A connection on which a test has begun to listen."""

    def __init__(self, database: Database) -> None:
        self.connected = 0
        connector = Connector(config.DatabaseSettings(dsn=database.dsn), "w")
        self.connection = ListenConnection(connector, "listener", "one", "two", on_connect=self._count)
        self.other = database.connect()

    def _count(self) -> None:
        self.connected += 1

    def notify(self, channel: str) -> None:
        self.other.execute("SELECT pg_notify(%s, '')", [channel])

    def terminate(self) -> None:
        self.other.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND starts_with(application_name, 'pgrouse listener')"
        )

    async def received(self) -> list[str]:
        while not (received := await self.connection.receive(30)):
            pass
        return [each.channel for each in received]

    async def until_connected(self) -> None:
        while not self.connection.is_connected:
            await self.connection.receive(30)

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        async def and_close() -> None:
            try:
                await test
            finally:
                await self.connection.close()

        asyncio.run(and_close())


@pytest.fixture
def listening(database: Database) -> Listening:
    return Listening(database)


def test_a_listener_receives_the_notifications_of_its_channels_only(listening: Listening) -> None:
    async def test() -> None:
        await listening.until_connected()
        for channel in ("one", "other", "two"):
            listening.notify(channel)

        received: list[str] = []
        while "two" not in received:
            received += await listening.received()
        assert received == ["one", "two"]

    listening.run(test())


def test_a_wait_ends_at_its_timeout_without_a_notification(listening: Listening) -> None:
    async def test() -> None:
        await listening.until_connected()

        assert await listening.connection.receive(0.05) == []

    listening.run(test())


def test_notifications_during_a_call_are_received_afterwards(listening: Listening) -> None:
    async def test() -> None:
        await listening.until_connected()
        listening.notify("one")

        assert await listening.connection.query(Call(b"SELECT 7", [], value)) == 7
        assert await listening.received() == ["one"]

    listening.run(test())


def test_an_ended_session_is_reported_once_and_replaced(listening: Listening) -> None:
    async def test() -> None:
        await listening.until_connected()
        await listening.connection.receive(0)
        listening.terminate()

        with capture_logs() as logs:
            while listening.connected < 2:
                await listening.connection.receive(30)
            listening.notify("two")
            assert await listening.received() == ["two"]

        assert [(log["event"], log["loop"]) for log in logs] == [
            (events.LOOP_FAILED, "listener"),
            (events.LOOP_RECOVERED, "listener"),
        ]

    listening.run(test())


def test_a_call_on_a_broken_connection_has_no_answer(listening: Listening) -> None:
    async def test() -> None:
        await listening.until_connected()
        listening.terminate()

        assert await listening.connection.query(Call(b"SELECT 7", [], value)) is None
        assert not listening.connection.is_connected
        assert await listening.connection.query(Call(b"SELECT 7", [], value)) is None

    listening.run(test())


def test_a_call_without_an_answer_in_time_breaks_the_connection(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen_connection, "ANSWER_TIMEOUT_S", 0.2)

    async def test() -> None:
        await listening.until_connected()

        assert await listening.connection.query(Call(b"SELECT pg_catalog.pg_sleep(60)", [], value)) is None
        assert not listening.connection.is_connected

    listening.run(test())


@pytest.mark.long
def test_waits_are_limited_and_pauses_grow_during_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff.random, "uniform", lambda _, longest: longest)
    connector = Connector(config.DatabaseSettings(dsn=NOWHERE), "w")
    connection = ListenConnection(connector, "listener", "one")

    async def waits() -> list[float]:
        took = []
        for _ in range(12):
            began = time.monotonic()
            assert await connection.receive(0.2) == []
            took.append(time.monotonic() - began)
        return took

    with capture_logs() as logs:
        took = asyncio.run(waits())

    assert not connection.is_connected
    assert max(took) < 60
    assert connector.opened["listener"] < len(took)
    assert [log["failures"] for log in logs] == [1]
