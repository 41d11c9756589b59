"""/metrics of the web server: the whole queue, for those who may see it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import httpx
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pgrouse.client.calls.monitoring.stats import COUNT_BOUND, TOPIC_LIMIT
from pgrouse.metrics import catalogue, queue_metrics
from tests.api.site import Site
from tests.daemon.proxy import Proxy
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

PROMTOOL = shutil.which("promtool")


def values(text: str) -> dict[str, float]:
    """Every series with its labels, as a line of the answer has it."""
    return {
        ",".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_metrics_count_the_messages_of_the_queue(http: httpx.Client, queue: Queue, site_database: Database) -> None:
    queue.publish_many(3, "depth", wait="-90 s")
    queue.publish("depth", wait="1 hour")
    queue.claim("depth", limit=1)
    queue.publish("dead")
    queue.settle("fail", queue.claim("dead"), ["boom"])
    queue.call("register_worker", "w", "host", 1, "1.0", ["depth"], 10)
    queue.rows("SELECT * FROM messages.tick('cron')")

    exported = values(http.get("/metrics").text)

    assert [exported[f"pgrouse_queue_messages,{state},depth"] for state in ("ready", "delayed", "running")] == [2, 1, 1]
    assert 90 <= exported["pgrouse_queue_oldest_ready_seconds,depth"] < 600
    assert exported["pgrouse_queue_dead_messages,dead"] == 1
    assert (exported["pgrouse_queue_handled,depth"], exported["pgrouse_queue_handled,dead"]) == (1, 0)
    assert [exported[f"pgrouse_workers,{state}"] for state in ("working", "stopping", "silent")] == [1, 0, 0]
    assert 0 <= exported["pgrouse_tick_age_seconds,cron"] < 600
    assert (exported["pgrouse_database_up"], exported["pgrouse_retention_held_exports"]) == (1, 0)


def test_the_metrics_say_when_schedules_ran_and_run_next(http: httpx.Client, queue: Queue) -> None:
    for name, topic in (("m.new", "mail"), ("m.ran", "mail.send"), ("m.paused", "mail")):
        queue.schedule(name, "@yearly", topic=topic)
    queue.call("run_schedule", "m.ran")
    queue.call("pause_schedule", "m.paused")

    exported = values(http.get("/metrics").text)

    last, due = "pgrouse_schedule_last_run_timestamp_seconds", "pgrouse_schedule_next_run_timestamp_seconds"
    ran = queue.scheduled("m.ran")
    times = {name: at for name, at in exported.items() if name.startswith((f"{last},m.", f"{due},m."))}
    assert times == {
        f"{last},m.ran,mail.send": ran.last_fired_at.timestamp(),
        f"{due},m.ran,mail.send": ran.next_tick.timestamp(),
        f"{due},m.new,mail": ran.next_tick.timestamp(),
    }


def test_the_series_are_bounded_and_those_of_counted_topics_come_first(http: httpx.Client, queue: Queue) -> None:
    queue.publish_many(2, "seen")
    queue.settle("fail", queue.claim("seen", limit=1), ["boom"])
    flood = "SELECT 'flood.' || n FROM generate_series(1, 6000) AS n"
    queue.conn.execute(
        f"INSERT INTO messages.dead_count (topic, result, count) SELECT f, 'failed', 9 FROM ({flood}) AS t (f)".encode()
    )
    queue.conn.execute(
        "INSERT INTO messages.condition (kind, topic, since, what, fix) "
        f"SELECT 'backlog', f, now(), '', '' FROM ({flood}) AS t (f)".encode()
    )
    queue.conn.execute("INSERT INTO messages.condition (kind, since, what, fix) VALUES ('cron_late', now(), '', '')")

    exported = values(http.get("/metrics").text)

    queue.conn.execute("DELETE FROM messages.dead_count WHERE topic LIKE 'flood.%'")
    queue.conn.execute("DELETE FROM messages.condition")
    conditions = [name for name in exported if name.startswith("pgrouse_condition")]
    assert len(conditions) == queue_metrics.MAX_SERIES
    assert any("cron_late" in name for name in conditions)
    assert len(exported) < 3 * queue_metrics.MAX_SERIES
    assert any(name.startswith("pgrouse_dead") and "seen" in name and exported[name] == 1 for name in exported)


def test_deaths_are_counted_by_result_and_the_counter_never_decreases(http: httpx.Client, queue: Queue) -> None:
    queue.publish_many(5, "counted")
    before = values(http.get("/metrics").text)
    queue.settle("fail", queue.claim("counted", limit=3), ["boom"] * 3)
    queue.settle("reject", queue.claim("counted", limit=1), ["no"])
    queue.settle("complete", queue.claim("counted", limit=1))
    queue.later("100 days")
    queue.conn.execute("DELETE FROM messages.message_archive WHERE topic = 'counted'")
    queue.rows("SELECT * FROM messages.tick()")

    exported = values(http.get("/metrics").text)

    results = ("rejected", "failed", "lock_expired", "expired")
    assert [before[f"pgrouse_dead_messages_total,{result},counted"] for result in results] == [0, 0, 0, 0]
    assert exported["pgrouse_dead_messages_total,failed,counted"] == 3
    assert exported["pgrouse_dead_messages_total,rejected,counted"] == 1
    # A topic with a low-water mark is listed for a while, with nothing in it.
    left = exported.get("pgrouse_queue_dead_messages,counted", 0)
    assert left == 0, "there is nothing left of them but the count"


def test_a_topic_without_notifications_is_reported(http: httpx.Client, queue: Queue) -> None:
    queue.policy("silent", notify="off")
    queue.publish("silent")
    queue.publish("other")

    exported = values(http.get("/metrics").text)

    assert [exported[f"pgrouse_queue_notify,{topic}"] for topic in ("silent", "other")] == [0, 1]


def test_a_long_snapshot_and_a_violated_condition_are_reported(
    http: httpx.Client, queue: Queue, site_database: Database
) -> None:
    queue.conn.execute(
        "INSERT INTO messages.condition (kind, topic, since, what, fix) "
        "VALUES ('backlog', 'slow', now(), 'late', 'add workers')"
    )
    holder = site_database.connect()
    holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with holder.transaction():
        holder.execute("SELECT FROM messages.topic")
        exported = values(http.get("/metrics").text)

    assert exported["pgrouse_oldest_snapshot_seconds"] > 0
    assert exported["pgrouse_condition,backlog,page,slow"] == 1


def test_the_metrics_match_the_catalogue_and_prometheus_accepts_them(http: httpx.Client) -> None:
    text = http.get("/metrics").text

    exported = {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert exported == {each.name for each in catalogue.QUEUE}
    if PROMTOOL is not None:
        ran = subprocess.run([PROMTOOL, "check", "metrics"], input=text, text=True, capture_output=True, check=False)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_openmetrics_is_served_on_request(http: httpx.Client) -> None:
    answer = http.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_a_token_of_some_topics_gets_only_their_metrics(site: Site, queue: Queue) -> None:
    for topic in ("shop.orders", "bank.orders"):
        queue.publish(topic)
        queue.schedule(f"m.{topic}", "@yearly", topic=topic)

    with site.client(site.token("viewer", topics=("shop.*",))) as viewer:
        text = viewer.get("/metrics").text

    assert 'topic="shop.orders"' in text
    assert 'schedule="m.shop.orders"' in text
    assert "bank" not in text


@pytest.fixture
def proxy(site_database: Database) -> Iterator[Proxy]:
    """A connection to the database that can be cut."""
    proxy = Proxy(site_database.dsn)
    yield proxy
    proxy.close()


def test_an_outage_of_the_database_is_the_only_metric_then(
    site_database: Database, proxy: Proxy, all_roles: str
) -> None:
    site = Site(site_database, proxy.dsn)
    try:
        with site.client(all_roles) as client:
            eventually(lambda: values(client.get("/metrics").text)["pgrouse_database_up"] == 1)
            proxy.hang_up()

            eventually(lambda: values(client.get("/metrics").text) == {"pgrouse_database_up": 0}, within_s=60)
    finally:
        site.stop()


def test_metrics_and_api_show_the_same_counts_as_the_rows(http: httpx.Client, site_database: Database) -> None:
    # It has a connection of its own, whose clock no other test has stopped.
    queue = Queue(site_database.connect())
    queue.publish_many(12_345, "many")
    queue.publish_many(12, "many", wait="1 hour", channel="c")
    queue.publish_many(7, "few")

    exported = values(http.get("/metrics").text)
    found = {row["topic"]: row for row in http.get("/v1/stats").json()["topics"]}
    listed = {row["topic"]: row for row in http.get("/v1/topics").json()["topics"]}

    query = "SELECT topic, count(*) AS count FROM messages.message WHERE available_at <= messages.now() GROUP BY 1"
    rows = {row.topic: row.count for row in queue.rows(query)}
    for topic in ("many", "few"):
        assert exported[f"pgrouse_queue_messages,ready,{topic}"] == rows[topic]
        assert found[topic]["ready"] == listed[topic]["ready"] == rows[topic]
    assert found["many"]["delayed"] == listed["many"]["delayed"] == 12
    assert http.get("/v1/stats").json()["exact_below"] == COUNT_BOUND
    arguments = queue.value("SELECT pg_get_function_arguments('messages.stats'::regproc)")
    assert arguments.startswith(f"p_bound integer DEFAULT {COUNT_BOUND},")
    assert arguments.endswith(f"p_limit integer DEFAULT {TOPIC_LIMIT}")
