"""Every face gives one answer: the command line, the live view, HTTP, the dashboard, metrics, the doctor, and SQL."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import httpx
import pytest

from pgrouse.cli.top.snapshot import SnapshotReader
from pgrouse.client.call import run
from pgrouse.client.client import Client
from pgrouse.client.queries.worker import count_held, count_workers, find_held
from tests.api.site import Site
from tests.cli.shell import Shell
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

pytest.importorskip("prometheus_client")


def test_of_a_daemon_and_a_worker_over_http_seen_45_seconds_ago(
    pgrouse: Shell, database: Database, queue: Queue, http: httpx.Client
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
    (counts,) = run(queue.conn, count_workers())
    assert (counts.working, counts.silent) == (1, 1)
    found = {each.code: each for each in queue.rows("SELECT * FROM messages.examine_workers()")}
    assert found["workers"].level == "ok"
    assert found["workers_gone"].what.startswith("daemon-1 ")
    assert found["unhandled_topics"].what == "messages of push wait, and no live worker handles that topic"
    shown = SnapshotReader().read(database.connect(), time.monotonic())
    assert {each.name: each.state for each in shown.workers} == states
    assert {each.topic: each.handled for each in shown.topics} == handled
    assert {each["name"]: each["state"] for each in http.get("/v1/workers").json()["workers"]} == states


STATES = {
    "over": "running",
    "paused": "paused",
    "broken": "breaker",
    "full": "running",
    "orphan": "unhandled",
}
BREAKER = """
  INSERT INTO messages.breaker (topic, position, probe_at, reason)
  VALUES ('broken', 'open', clock_timestamp() + interval '1 hour', '9 of 10 failed')"""


def test_of_topics_that_are_paused_stopped_by_their_breaker_full_and_unhandled(
    pgrouse: Shell, database: Database, queue: Queue, http: httpx.Client
) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", [topic for topic in STATES if topic != "orphan"], 10)
    queue.policy("broken", breaker={"pause": "1h"})
    queue.policy("full", max_depth=1)
    ids = {topic: queue.publish(topic) for topic in STATES}
    queue.call("pause", "over", resume_in="1 hour")
    queue.call("pause", "paused", "the relay is down", resume_in="1 hour")
    queue.conn.execute("UPDATE messages.topic SET resume_at = clock_timestamp() - interval '1 s' WHERE topic = 'over'")
    queue.conn.execute(BREAKER)

    # SQL and Python
    known = Client(queue.conn).topic_state(sorted(STATES))
    assert {each.topic: each.state for each in known} == STATES
    assert {each.topic for each in known if each.full} == {"full"}
    # the live view
    shown = SnapshotReader().read(database.connect(), time.monotonic())
    assert {each.topic: each.state for each in shown.topics} == STATES
    # the command line
    assert {each["topic"]: each["state"] for each in pgrouse("topic", "list", "--json").objects} == {
        "*": "running",
        **{topic: state for topic, state in STATES.items() if topic != "orphan"},
    }
    details = {topic: pgrouse("topic", "show", topic, "--json").object for topic in STATES}
    assert {topic: each["state"] for topic, each in details.items()} == STATES
    assert {topic for topic, each in details.items() if each["full"]} == {"full"}
    explained = {
        topic: {each["code"] for each in pgrouse("explain", str(ids[topic]), "--json").object["reasons"]}
        for topic in ("paused", "broken", "orphan")
    }
    assert explained == {"paused": {"paused"}, "broken": {"breaker_open"}, "orphan": {"unhandled"}}
    # HTTP
    listed = http.get("/v1/topics").json()["topics"]
    assert {each["topic"]: each["state"] for each in listed} == STATES
    assert {each["topic"] for each in listed if each["full"]} == {"full"}
    assert {topic: http.get(f"/v1/topics/{topic}").json()["state"] for topic in STATES} == STATES
    assert {topic for topic in STATES if http.get(f"/v1/topics/{topic}").json()["paused"]} == {"paused"}
    # metrics
    metrics = http.get("/metrics").text
    assert {topic for topic in STATES if f'pgrouse_queue_stopped{{topic="{topic}"}} 1.0' in metrics} == {
        "paused",
        "broken",
    }
    # the dashboard
    pages = {topic: http.get(f"/topics/{topic}").text for topic in STATES}
    for topic, badge in {
        "over": "on",
        "paused": "paused",
        "broken": "breaker open",
        "full": "full",
        "orphan": "no worker",
    }.items():
        assert f">{badge}</span>" in pages[topic], topic
    # the doctor, and the conditions that alert
    found = {(each.code, each.what) for each in queue.rows("SELECT * FROM messages.doctor()")}
    assert {what.split()[0] for code, what in found if code == "paused"} == {"paused"}
    assert [what for code, what in found if code == "breakers"] == ["the breaker of broken is open: 9 of 10 failed"]
    assert [what for code, what in found if code == "unhandled_topics"] == [
        "messages of orphan wait, and no live worker handles that topic"
    ]
    assert [each.topic for each in queue.rows("SELECT * FROM messages.open_conditions()")] == ["broken"]
    # a claim
    held_back = queue.claim_with_next_due(*STATES)[1].held_back
    assert {name.removeprefix("topic ") for name in held_back} == {"paused", "broken"}


def test_of_dead_messages_of_which_some_are_redriven_and_others_are_silenced(
    pgrouse: Shell, database: Database, queue: Queue, http: httpx.Client
) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", ["fixed", "known", "open"], 10)
    queue.conn.execute("UPDATE messages.alert_threshold SET dead_per_hour = 3 WHERE topic = '*'")
    for topic in ("fixed", "known", "open"):
        queue.publish_many(5, topic)
        queue.settle("fail", queue.claim(topic), ["boom"] * 5)
    queue.call("update_conditions")

    queue.rows("SELECT FROM messages.redrive(ARRAY(SELECT id FROM messages.dead WHERE topic = 'fixed' LIMIT 2))")
    queue.call("silence", None, "known", None, "1 hour")

    counted, wrong = {"fixed": 3, "known": 5, "open": 5}, ["open"]
    # SQL and the doctor
    assert [row.topic for row in queue.rows("SELECT * FROM messages.open_conditions()")] == wrong
    found = queue.rows("SELECT * FROM messages.doctor() WHERE code = 'dead_rate'")
    assert [row.what for row in found] == ["more than 3 messages of open died in an hour"]
    groups = queue.rows("SELECT topic, count - redriven AS count FROM messages.dead_groups()")
    assert {row.topic: row.count for row in groups} == counted
    # the command line
    stats = pgrouse("stats", "--json").object
    assert {each["topic"]: each["dead_last_day"] for each in stats["topics"]} == counted
    assert [each["topic"] for each in stats["problems"]] == wrong
    # the live view
    reader, conn = SnapshotReader(), database.connect()
    reader.read(conn, 0.0)
    shown = reader.read(conn, 0.0)
    assert {each.topic: each.dead_last_day for each in shown.topics} == counted
    assert {each.topic: each.count for each in shown.dead or []} == counted
    assert [each.topic for each in shown.problems] == wrong
    # HTTP, and metrics
    listed = http.get("/v1/topics").json()["topics"]
    assert {each["topic"]: each["dead_last_day"] for each in listed} == counted
    metrics = http.get("/metrics").text
    assert {topic for topic in counted if f'kind="dead_rate",severity="page",topic="{topic}"' in metrics} == set(wrong)
    for topic, count in counted.items():
        assert f'pgrouse_queue_dead_messages{{topic="{topic}"}} {count:.1f}' in metrics
    # the dashboard: the problem, and the page that its button opens
    overview = http.get("/", headers={"accept": "text/html"}).text
    assert ("1 problem<" in overview, ">13</dd>" in overview) == (True, True)
    for topic, count in counted.items():
        page = http.get("/messages", params={"topic": topic, "state": "dead"}, headers={"accept": "text/html"}).text
        assert page.count('<tr id="m') == count
        page = http.get("/dead", params={"topic": topic}, headers={"accept": "text/html"}).text
        assert re.findall(r"<strong>(\d+)</strong>", page) == [str(count)]
    assert 'href="/dead?topic=open"' in overview


def test_of_a_fleet_that_died(pgrouse: Shell, database: Database, queue: Queue, http: httpx.Client) -> None:
    for name in ("w1", "w2"):
        queue.call("register_worker", name, "h", 7, "1", ["mail"], 10)
    queue.conn.execute("UPDATE messages.worker SET seen_at = seen_at - interval '1 hour'")
    queue.publish("mail", wait="-10 minutes")
    # For 30 seconds after its start the server does not know who lives.
    (said,) = eventually(lambda: queue.rows("SELECT what FROM messages.workers_down()"))
    queue.call("update_conditions")
    kinds = ["workers_down"]

    assert re.fullmatch(r"no worker is alive: w2 was last seen at .*, w1 was last seen at .*", said.what)
    assert [row.kind for row in queue.rows("SELECT * FROM messages.open_conditions()")] == kinds
    assert [row.kind for row in queue.rows("SELECT * FROM messages.incidents()")] == kinds
    stats = pgrouse("stats")
    assert stats.err.splitlines()[0] == said.what
    assert "no worker handles" not in stats.err
    shown = SnapshotReader().read(database.connect(), 0.0)
    assert [each.what for each in shown.problems] == [said.what]
    assert [each["kind"] for each in http.get("/v1/conditions").json()["conditions"]] == kinds
    assert 'kind="workers_down",severity="page"' in http.get("/metrics").text
    found = queue.rows("SELECT code, what FROM messages.examine_workers() WHERE level <> 'ok'")
    assert [tuple(row) for row in found] == [("workers", said.what)]
    for path in ("/", "/topics", "/alerts"):
        page = http.get(path, headers={"accept": "text/html"}).text
        assert "<title>(1: workers down) " in page


@pytest.fixture
def http(database: Database) -> Iterator[httpx.Client]:
    """A client of a web server on this database, without tokens: its caller may do everything."""
    site = Site(database)
    try:
        with site.client() as client:
            yield client
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


def test_of_a_workflow_whose_first_message_was_redriven(
    pgrouse: Shell, database: Database, queue: Queue, http: httpx.Client
) -> None:
    first, other = queue.publish("w.first"), queue.publish("w.other")
    second, third = queue.send(topic="w.second", after=[first]).id, queue.send(topic="w.third", after=[first, other]).id
    queue.settle("fail", queue.claim("w.first", "w.other"), ["boom", "boom"])
    became = queue.row("SELECT * FROM messages.redrive(%s)", [[first]]).message_id

    # HTTP
    (listed,) = http.get("/v1/workflows").json()["workflows"]
    one = http.get(f"/v1/workflows/{first}").json()
    messages = {each["id"]: each for each in one.pop("messages")}
    assert one == listed
    assert {name: listed[name] for name in ("id", "state", "topic", "total", "live", "held", "dead")} == {
        "id": first,
        "state": "held",
        "topic": "w.first",
        "total": 4,
        "live": 3,
        "held": 1,
        "dead": 1,
    }
    states = {became: "ready", other: "failed", second: "blocked", third: "blocked"}
    assert {each: message["state"] for each, message in messages.items()} == states
    assert {each: message["after"] for each, message in messages.items() if message["after"]} == {
        second: [became],
        third: [became, other],
    }
    # the dashboard
    listed_page, page = http.get("/workflows").text, http.get(f"/workflows/{first}").text
    assert all(f">{text}</" in listed_page for text in ("w.first", "1 of 4", "held"))
    assert all(text in page for text in (">held</span>", "1 of 4", "/topics/w.first"))
    tabs = dict(re.findall(r'>([A-Z][a-z ]+) <span class="number">(\d+)<', page))
    assert tabs == {"All": "4", "Not ended": "3", "Held": "1", "Dead": "1"}
    # the command line, of what a message waits for
    shown = pgrouse("message", "show", str(third), "--json").object
    assert {each["id"]: each["state"] for each in shown["before"]} == {became: "ready", other: "failed"}
    # SQL
    counted = queue.row("SELECT * FROM messages.workflow_state(%s)", [[first]])._asdict()
    assert {name: counted[name] for name in listed if not name.endswith("_at")} == {
        name: value for name, value in listed.items() if not name.endswith("_at")
    }
    rows = queue.rows("SELECT * FROM messages.workflow_messages(%s)", [first])
    assert {each.id: each.state for each in rows} == states
