"""Every face gives one answer: the command line, the live view, HTTP, the dashboard, metrics, the doctor, and SQL."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from pgrouse.client.call import run
from pgrouse.client.queries.worker import count_held, find_held
from pgrouse.metrics.queue_metrics import WORKERS
from pgrouse.top.snapshot import SnapshotReader
from tests.api.site import Site
from tests.cli.shell import Shell
from tests.server.postgres import Database
from tests.sql.queue import Queue

pytest.importorskip("prometheus_client")


def read(database: Database, statement: bytes) -> dict[str, Any]:
    with psycopg.connect(database.dsn, row_factory=dict_row) as conn:
        return conn.execute(statement).fetchone() or {}


def test_of_a_daemon_and_a_worker_over_http_seen_45_seconds_ago(
    pgrouse: Shell, database: Database, queue: Queue
) -> None:
    queue.conn.execute(
        """INSERT INTO messages.worker (name, host, pid, version, topics, concurrency, seen_at, kind) VALUES
             ('over-http', 'h', 1, '1', '{mail}', 4, clock_timestamp() - interval '45 s', 'http'),
             ('daemon-1', 'h', 1, '1', '{mail,push}', 4, clock_timestamp() - interval '45 s', 'daemon')"""
    )
    queue.publish("mail")
    queue.publish("push")

    states = {"daemon-1": "silent", "over-http": "working"}
    handled = {"mail": True, "push": False}
    assert {each["name"]: each["state"] for each in pgrouse("worker", "list", "--json").objects} == states
    assert {each["topic"]: each["handled"] for each in pgrouse("stats", "--json").object["topics"]} == handled
    assert {topic: queue.call("is_handled", topic) for topic in handled} == handled
    assert pgrouse("health", "--worker", "daemon-1").code != 0
    assert pgrouse("health", "--worker", "over-http").code == 0
    assert "unhandled" in pgrouse("explain", str(queue.value("SELECT max(id) FROM messages.message"))).out
    measured = read(database, WORKERS)
    assert (measured["working"], measured["silent"]) == (1, 1)
    found = {each.code: each for each in queue.rows("SELECT * FROM messages.examine_workers()")}
    assert found["workers"].level == "ok"
    assert found["workers_gone"].what.startswith("daemon-1 ")
    assert found["unhandled_topics"].what == "messages of push wait, and no live worker handles that topic"
    shown = SnapshotReader().read(database.connect(), time.monotonic())
    assert {each.name: each.state for each in shown.workers} == states
    assert {each.topic: each.handled for each in shown.topics} == handled
    site = Site(database)
    try:
        with site.client() as http:
            answer = http.get("/v1/workers").json()
            overview = http.get("/").text
        assert {each["name"]: each["state"] for each in answer["workers"]} == states
        assert ("1 working" in overview, "1 silent" in overview) == (True, True)
    finally:
        site.stop()


def test_of_the_actions_on_a_topic(pgrouse: Shell, database: Database, queue: Queue) -> None:
    queue.call("pause", "orders")
    queue.call("cancel", [queue.publish("mail"), queue.publish("orders")])

    listed = [each["id"] for each in pgrouse("audit", "--topic", "mail", "--json").objects]
    site = Site(database)
    try:
        with site.client() as http:
            over_http = [each["id"] for each in http.get("/v1/audit", params={"topic": "mail"}).json()["entries"]]
            page = http.get("/audit", params={"topic": "mail"}).text
    finally:
        site.stop()

    assert listed == over_http == [2]
    assert ("cancel" in page, '<th scope="row" class="nowrap">pause' in page) == (True, False)


def test_of_the_worker_that_runs_a_message(database: Database, queue: Queue) -> None:
    for worker in ("http:w/7", "daemon-1/3"):
        queue.publish()
        queue.claim(worker=worker)

    conn = database.connect()

    counted = {each.worker for each in run(conn, count_held())}
    listed = {each.worker for each in run(conn, find_held(5))}
    assert counted == listed == {"http:w/7", "daemon-1"}
