"""messages.conditions: current problems, each provoked for real."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.postgres import Database
from tests.sql.queue import Queue


def found(queue: Queue) -> dict[str, str | None]:
    """Return the topic of each condition by its kind."""
    return {row.kind: row.topic for row in queue.rows("SELECT * FROM messages.conditions()")}


def set_threshold(queue: Queue, **thresholds: Any) -> None:
    for name, value in thresholds.items():
        queue.conn.execute(f"UPDATE messages.alert_threshold SET {name} = %s WHERE topic = '*'".encode(), [value])


def worker(queue: Queue, *topics: str, **status: Any) -> None:
    queue.call("register_worker", "w", "host", 42, "1.0", list(topics), 10)
    queue.call("touch_worker", "w", status)


def test_an_idle_queue_has_no_condition(queue: Queue) -> None:
    worker(queue, "t", listener="listening")
    queue.publish()
    queue.publish(wait="1 hour")

    assert found(queue) == {}


def test_each_condition_has_its_begin_text_and_fix(queue: Queue) -> None:
    worker(queue, "t")
    queue.publish(wait="-20 minutes")

    (row,) = queue.rows("SELECT c.*, messages.now() - c.since AS age FROM messages.conditions() AS c")

    assert (row.kind, row.topic, row.what) == ("backlog", "t", "messages of t have been ready for more than 15m")
    assert "pgrouse explain" in row.fix
    assert 295 < row.age.total_seconds() < 360, "the age begins when the threshold was exceeded, not at the publish"


@pytest.mark.parametrize("channel", [None, "c"])
def test_a_backlog_is_a_message_that_is_ready_for_too_long(queue: Queue, channel: str | None) -> None:
    worker(queue, "t")
    queue.publish(wait="-14 minutes", channel=channel)
    assert found(queue) == {}

    queue.publish(wait="-16 minutes", channel=channel)

    assert found(queue) == {"backlog": "t"}


def test_the_threshold_of_a_topic_wins_over_the_default_and_zero_switches_it_off(queue: Queue) -> None:
    worker(queue, "t", "slow")
    queue.publish(wait="-1 minute")
    queue.publish("slow", wait="-1 day")
    queue.conn.execute("INSERT INTO messages.alert_threshold (topic, backlog_age) VALUES ('t', '30 s'), ('slow', '0')")

    assert found(queue) == {"backlog": "t"}


def test_a_paused_topic_is_no_backlog(queue: Queue) -> None:
    queue.publish(wait="-1 hour")
    queue.call("pause", "t")

    assert found(queue) == {}


def test_waiting_dead_letters_are_no_backlog_unless_they_have_a_threshold(queue: Queue) -> None:
    queue.policy("t", dead_letter=True)
    queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])
    queue.later("1 day")
    assert found(queue) == {}

    queue.conn.execute("INSERT INTO messages.alert_threshold (topic, backlog_age) VALUES ('t.dlq', '1 hour')")

    assert found(queue) == {"backlog": "t.dlq"}


def test_a_topic_without_a_worker_is_reported_when_its_messages_wait(queue: Queue) -> None:
    queue.publish(wait="-6 minutes")
    worker(queue, "other")
    assert found(queue) == {"no_worker": "t"}

    worker(queue, "t")

    assert found(queue) == {}


def test_a_silent_worker_handles_nothing(queue: Queue) -> None:
    queue.publish(wait="-6 minutes")
    worker(queue, "t")

    queue.conn.execute("UPDATE messages.worker SET seen_at = seen_at - interval '2 minutes'")

    assert found(queue) == {"no_worker": "t"}


def test_a_topic_without_a_worker_is_reported_once_and_not_as_a_backlog_too(queue: Queue) -> None:
    queue.publish(wait="-1 hour")
    assert [(row.kind, row.topic) for row in queue.rows("SELECT * FROM messages.conditions()")] == [("no_worker", "t")]

    queue.conn.execute("INSERT INTO messages.alert_threshold (topic, no_worker_for) VALUES ('t', '0')")

    assert found(queue) == {"backlog": "t"}, "otherwise nothing reports it"


@pytest.mark.parametrize("working", ["holds a message", "sleeps armed"])
def test_a_worker_outside_the_registry_handles_its_topic_too(queue: Queue, working: str) -> None:
    queue.publish_many(2, wait="-6 minutes")
    assert found(queue) == {"no_worker": "t"}

    if working == "holds a message":
        queue.claim(worker="http:shop", limit=1)
    else:
        queue.call("arm", "shop", ["t"], "30 s")

    assert found(queue) == {}


def test_a_worker_without_notifications_is_reported_by_name(queue: Queue) -> None:
    worker(queue, "t", listener="degraded")

    (row,) = queue.rows("SELECT * FROM messages.conditions()")

    assert (row.kind, row.what) == ("listener_degraded", "workers that get no notifications: w")


def test_pg_cron_is_late_if_it_ticked_once_and_then_stopped(queue: Queue) -> None:
    queue.conn.execute("SELECT FROM messages.tick('daemon')")
    queue.conn.execute("SELECT FROM messages.tick('cron')")
    assert found(queue) == {}

    queue.later("6 minutes")

    assert found(queue) == {"cron_late": None}


def test_an_open_breaker_is_reported_with_its_reason(queue: Queue) -> None:
    queue.policy("t", breaker={"pause": "10m"})
    queue.conn.execute(
        "INSERT INTO messages.breaker (topic, position, probe_at, reason) VALUES ('t', 'open', now(), '9 of 10 failed')"
    )

    (row,) = queue.rows("SELECT * FROM messages.conditions()")

    assert (row.kind, row.topic, row.what) == ("breaker", "t", "the breaker of t is open: 9 of 10 failed")


def test_a_breaker_that_probes_is_no_backlog_either(queue: Queue) -> None:
    worker(queue, "t")
    queue.policy("t", breaker={"pause": "10m"})
    queue.publish(wait="-1 hour")
    queue.conn.execute(
        "INSERT INTO messages.breaker (topic, position, probe_at, reason) VALUES ('t', 'open', now() - interval '1 minute', 'x')"
    )

    assert found(queue) == {"breaker": "t"}


def test_an_old_snapshot_is_reported_with_its_session(queue: Queue, database: Database) -> None:
    holder = database.connect(autocommit=False, application_name="nightly report")
    holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    holder.execute("SELECT FROM messages.message")
    assert found(queue) == {}

    set_threshold(queue, snapshot_age="0.001 s")
    (row,) = [row for row in queue.rows("SELECT * FROM messages.conditions()") if row.kind == "snapshot_held"]

    assert f"nightly report, process {holder.info.backend_pid}" in row.what
    assert f"pg_terminate_backend({holder.info.backend_pid})" in row.fix
    holder.rollback()
    assert found(queue) == {}


def test_the_owner_sees_the_transactions_of_other_roles(queue: Queue) -> None:
    assert queue.value("SELECT pg_has_role('messages_owner', 'pg_read_all_stats', 'USAGE')") is True


def test_many_dead_messages_in_an_hour_are_reported(queue: Queue) -> None:
    set_threshold(queue, dead_per_hour=5)
    queue.publish_many(5)
    queue.settle("fail", queue.claim(), ["boom"] * 5)
    assert found(queue) == {}

    queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])

    assert found(queue) == {"dead_rate": "t"}
    queue.later("61 minutes")
    assert found(queue) == {}


def test_a_sink_that_refuses_notifications_is_reported(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.alert_sink (name, type, failing_since) VALUES ('ops', 'webhook', now() - interval '16 minutes')"
    )

    (row,) = queue.rows("SELECT * FROM messages.conditions()")

    assert (row.kind, row.what.startswith("sink ops has failed since ")) == ("alerts_undelivered", True)


def test_a_sink_without_a_deliverer_is_reported_only_if_something_is_to_be_delivered(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.alert_sink (name, type, position, seen_at) VALUES ('ops', 'webhook', pg_current_snapshot(), now() - interval '16 minutes')"
    )
    assert found(queue) == {}

    queue.conn.execute("INSERT INTO messages.alert (topic, result) VALUES ('t', 'failed')")

    assert found(queue) == {"alerts_undelivered": None}


def test_it_reads_a_few_pages_however_many_messages_wait_and_are_archived(queue: Queue) -> None:
    queue.publish_many(20_000)
    queue.publish_many(5_000, "u", wait="-1 hour")
    queue.publish_many(3_000, "dying")
    queue.settle("fail", queue.claim("dying", limit=10_000), ["boom"] * 3_000)
    queue.conn.execute("ANALYZE messages.message, messages.message_archive")

    assert queue.buffers("SELECT * FROM messages.conditions()") < 2500


def test_beyond_its_limit_it_returns_what_the_last_ticks_found(queue: Queue) -> None:
    for topic in ("a", "b", "c"):
        queue.publish(topic, wait="-1 hour")
    queue.call("update_conditions")
    queue.publish("d", wait="-1 hour")
    queue.call("purge_topic", "a")
    queue.call("purge_topic", "c")

    query = "SELECT c.topic FROM messages.conditions(%s, %s) AS c ORDER BY c.topic"

    assert [row.topic for row in queue.rows(query, ["", 1])] == ["b", "c"]
    assert [row.topic for row in queue.rows(query, ["b", 10])] == ["a", "b", "d"]
    assert [row.topic for row in queue.rows(query, ["", 10])] == ["b", "d"]
