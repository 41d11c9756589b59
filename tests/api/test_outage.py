"""Outages of the database: the server reports them, and recovers by itself."""

from __future__ import annotations

import threading
import time

import httpx
import pytest

from tests.api.site import Site, code
from tests.server.deadline import eventually
from tests.server.postgres import Postgres
from tests.sql.queue import Queue


@pytest.mark.long
def test_a_server_reports_an_outage_of_the_database_and_recovers(private_server: Postgres) -> None:
    database = private_server.new_database(template=private_server.migrated)
    with database as made:
        site = Site(made)
        client = site.client(site.token("viewer", "publisher"))
        try:
            assert client.post("/v1/messages", json={"topic": "t", "payload": None}).status_code == 201

            private_server.place.stop()
            away = client.post("/v1/messages", json={"topic": "t", "payload": None})
            alive, ready = client.get("/livez"), client.get("/readyz")
            private_server.place.start()

            eventually(
                lambda: client.post("/v1/messages", json={"topic": "t", "payload": None}).status_code == 201,
                within_s=90,
            )
            eventually(lambda: client.get("/readyz").status_code == 200, within_s=90)
        finally:
            client.close()
            site.stop()

    assert (away.status_code, code(away), away.headers["retry-after"]) == (503, "unavailable", "2")
    assert (alive.status_code, ready.status_code) == (200, 503)


@pytest.mark.long
def test_a_server_that_starts_before_its_database_waits_for_it(private_server: Postgres) -> None:
    with private_server.new_database(template=private_server.migrated) as made:
        private_server.place.stop()
        site = Site(made)
        try:
            assert httpx.get(f"{site.url}/v1/stats").status_code == 503
            private_server.place.start()

            eventually(lambda: httpx.get(f"{site.url}/readyz").status_code == 200, within_s=90)
        finally:
            site.stop()


def test_a_database_without_the_schema_is_reported_with_the_fix(server: Postgres) -> None:
    with server.new_database() as empty:
        site = Site(empty)
        try:
            ready, answer = httpx.get(f"{site.url}/readyz"), httpx.get(f"{site.url}/v1/stats")
        finally:
            site.stop()

    assert (ready.status_code, answer.status_code) == (503, 503)
    assert "pgrouse migrate" in answer.json()["detail"]


def test_a_statement_that_takes_too_long_is_cancelled_and_reported(
    site: Site, http: httpx.Client, queue: Queue
) -> None:
    short = Site(site.database, statement_timeout="300ms")
    published = queue.publish("t")
    holder = site.database.connect()
    holder.execute("BEGIN")
    holder.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [published])
    try:
        with short.client(site.token("operator")) as client:
            began = time.monotonic()
            answer = client.post("/v1/messages/cancel", json={"ids": [published]})
    finally:
        holder.close()
        short.stop()

    assert (answer.status_code, code(answer), answer.headers["retry-after"]) == (503, "timed_out", "2")
    assert time.monotonic() - began < 30


def test_a_stopping_server_answers_waiting_claims(server: Postgres) -> None:
    with server.new_database(template=server.migrated) as made:
        site, queue = Site(made), Queue(made.connect())
        found: list[httpx.Response] = []
        with site.client(site.token("worker")) as client:
            body = {"topics": ["t"], "wait": 30}
            waiting = threading.Thread(target=lambda: found.append(client.post("/v1/claim", json=body)))
            waiting.start()
            eventually(lambda: queue.value("SELECT count(*) FROM messages.sleeper WHERE worker LIKE 'web:%%'"))

            site.stop()
            waiting.join(60)

    assert found[0].json() == {"messages": [], "draining": False}
