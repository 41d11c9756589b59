"""The maintenance that the web server runs: workers use HTTP, and there is no daemon and no pg_cron."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest

from tests.api.site import Site
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue


@pytest.fixture
def database(server: Postgres) -> Iterator[Database]:
    """A database that only the web server uses."""
    with server.new_database(template=server.migrated) as database:
        yield database


@pytest.fixture
def queue(database: Database) -> Queue:
    """The queue itself, to prepare and to check."""
    return Queue(database.connect())


@pytest.fixture
def site(database: Database) -> Iterator[Site]:
    """A web server without daemons."""
    site = Site(database, maintenance_interval="0.1s")
    yield site
    site.stop()


def claim(client: httpx.Client, topic: str, **how: Any) -> list[dict[str, Any]]:
    answer = client.post("/v1/claim", json={"topics": [topic], **how})
    assert answer.status_code == 200, answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


def test_the_message_of_a_dead_worker_is_claimed_again(site: Site, queue: Queue) -> None:
    queue.policy("t", max_attempts=2)
    with site.client() as client:
        client.post("/v1/messages", json={"topic": "t", "payload": 1})
        (first,) = claim(client, "t", lock_duration="1s")

        (second,) = eventually(lambda: claim(client, "t"))

    assert (second["id"], second["attempt"]) == (first["id"], 2)


def test_schedules_fire_and_messages_past_their_ttl_expire(site: Site, queue: Queue) -> None:
    with site.client() as client:
        client.post(
            "/v1/schedules", json={"name": "often", "cron": "1 seconds", "topic": "scheduled"}
        ).raise_for_status()
        client.post("/v1/messages", json={"topic": "late", "payload": 1, "ttl": "1s"}).raise_for_status()

        assert eventually(lambda: claim(client, "scheduled"))
        eventually(
            lambda: queue.value("SELECT max(result) FROM messages.message_archive WHERE topic = 'late'") == "expired"
        )


def test_two_servers_and_a_daemon_tick_no_more_often_than_one(database: Database, queue: Queue) -> None:
    sites = [Site(database, maintenance_interval="1h") for _ in range(2)]
    try:
        eventually(lambda: queue.value("SELECT count(*) FROM messages.tick_mark WHERE caller = 'web'") > 0)
        ran = queue.value("SELECT max(ran_at) FROM messages.tick_mark")
        daemons = [queue.rows("SELECT messages.tick('daemon', p_unless_within => '48 minutes')") for _ in range(2)]
    finally:
        for site in sites:
            site.stop()

    assert (daemons, queue.value("SELECT max(ran_at) FROM messages.tick_mark")) == ([[], []], ran)


def test_a_server_whose_user_may_not_tick_serves_without_ticks(
    database: Database, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.conn.execute("CREATE ROLE onlooker LOGIN IN ROLE messages_operator")
    try:
        site = Site(
            database, dsn=psycopg.conninfo.make_conninfo(database.dsn, user="onlooker"), maintenance_interval="0.1s"
        )
        try:
            with site.client() as client:
                eventually(lambda: client.get("/v1/stats").status_code == 200)
                eventually(
                    lambda: queue.value(
                        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '%%maintenance%%'"
                    )
                )
        finally:
            site.stop()
        assert queue.value("SELECT count(*) FROM messages.tick_mark") == 0
    finally:
        queue.conn.execute("DROP ROLE onlooker")
