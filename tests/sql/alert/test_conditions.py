"""Conditions: which ones hold, when they open and close, and what an incident is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.server.postgres import Database
from tests.sql.queue import Listener, Queue
from tests.sql.sinks import RULES, Sink, raise_alert

# messages.conditions: current problems, each provoked for real.


@pytest.fixture(autouse=True)
def _another_worker(queue: Queue) -> None:
    """Another worker is alive: without any, that is reported, and not each topic."""
    queue.call("register_worker", "elsewhere", "host", 7, "1.0", ["elsewhere"], 1)


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

    queue.conn.execute("UPDATE messages.worker SET seen_at = seen_at - interval '2 minutes' WHERE name = 'w'")

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
        "INSERT INTO messages.breaker (topic, position, probe_at, reason) "
        "VALUES ('t', 'open', now() - interval '1 minute', 'x')"
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
        "INSERT INTO messages.alert_sink (name, type, failing_since) "
        "VALUES ('ops', 'webhook', now() - interval '16 minutes')"
    )

    (row,) = queue.rows("SELECT * FROM messages.conditions()")

    assert (row.kind, row.what.startswith("sink ops has failed since ")) == ("alerts_undelivered", True)


def test_a_sink_without_a_deliverer_is_reported_only_if_something_is_to_be_delivered(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.alert_sink (name, type, position, seen_at) "
        "VALUES ('ops', 'webhook', pg_current_snapshot(), now() - interval '16 minutes')"
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


# messages.open_conditions: what the last tick found wrong, and the breakers that are open now.


def open_conditions_found(queue: Queue) -> list[tuple[str, str, str | None]]:
    return [(row.kind, row.severity, row.topic) for row in queue.rows("SELECT * FROM messages.open_conditions()")]


def test_it_has_the_conditions_of_the_last_tick_and_the_open_breakers_the_worst_first(queue: Queue) -> None:
    queue.policy("mail", breaker={"pause": "10m"})
    open_breaker(queue, "mail")
    queue.publish("orphan", wait="-10 minutes")
    assert open_conditions_found(queue) == [("breaker", "page", "mail")]

    queue.call("update_conditions")

    assert open_conditions_found(queue) == [("no_worker", "page", "orphan"), ("breaker", "page", "mail")]


def test_it_lists_what_the_doctor_finds_with_the_same_levels(queue: Queue) -> None:
    queue.policy("mail", breaker={"pause": "10m"})
    open_breaker(queue, "mail")
    queue.conn.execute("UPDATE messages.alert_threshold SET dead_per_hour = 2 WHERE topic = '*'")
    queue.publish_many(4, "payments")
    queue.settle("fail", queue.claim("payments", limit=4), ["boom"] * 4)
    queue.publish("orphan", wait="-10 minutes")
    queue.publish("stopped", wait="-10 minutes")
    queue.call("pause", "stopped")
    queue.call("update_conditions")

    doctor = queue.rows("SELECT code, level, what FROM messages.doctor() WHERE level <> 'ok'")

    codes = {"breaker": "breakers", "no_worker": "unhandled_topics", "dead_rate": "dead_rate"}
    levels = {(row.code, row.level) for row in doctor if row.code in codes.values()}
    level_of = {"page": "fail", "ticket": "warn"}
    assert levels == {(codes[kind], level_of[severity]) for kind, severity, _ in open_conditions_found(queue)}
    assert "stopped" not in " ".join(row.what for row in doctor)


# messages.update_conditions: one alert when a condition begins, and one when it ends.


def alerts(queue: Queue) -> list[tuple[str, ...]]:
    return [tuple(row) for row in queue.rows("SELECT kind, topic, result FROM messages.alert ORDER BY id")]


def test_it_writes_an_alert_when_a_condition_begins_and_ends_and_none_between(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 42, "1.0", ["t"], 10)
    queue.publish(wait="-1 hour")

    assert [queue.call("update_conditions") for _ in range(3)] == [1, 0, 0]
    assert alerts(queue) == [("backlog", "t", "begun")]
    queue.claim()

    assert [queue.call("update_conditions") for _ in range(2)] == [1, 0]
    assert alerts(queue) == [("backlog", "t", "begun"), ("backlog", "t", "ended")]


def test_the_alert_has_the_text_and_the_fix_and_notifies_the_deliverers(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    listener = listen("alert")
    queue.publish(wait="-6 minutes")

    queue.call("update_conditions")

    alert = queue.row("SELECT kind, sample_error, fix FROM messages.alert")
    assert alert.kind == "no_worker"
    assert "no worker handles the topic" in alert.sample_error
    assert "start a daemon" in alert.fix
    assert listener.received() == ["no_worker"]


def test_it_is_a_task_of_the_tick_and_needs_no_daemon(queue: Queue) -> None:
    queue.publish(wait="-1 hour")
    queue.publish("u", wait="-1 hour")
    queue.conn.execute("INSERT INTO messages.alert_threshold (topic, no_worker_for) VALUES ('u', '0')")

    queue.rows("SELECT * FROM messages.tick('cron')")

    assert {kind for kind, *_ in alerts(queue)} == {"backlog", "no_worker"}


def test_of_several_concurrent_ticks_one_does_it(queue: Queue, database: Database) -> None:
    queue.publish(wait="-6 minutes")
    other = Queue(database.connect(autocommit=False))
    assert other.call("update_conditions") == 1

    assert queue.call("update_conditions") == 0
    other.conn.commit()

    assert queue.call("update_conditions") == 0
    assert len(alerts(queue)) == 1


def test_a_degraded_listener_is_reported_only_after_a_while(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 42, "1.0", ["t"], 10)
    queue.call("touch_worker", "w", {"listener": "degraded"})
    assert queue.call("update_conditions") == 0

    queue.later("61 s")

    assert queue.call("update_conditions") == 1
    assert alerts(queue) == [("listener_degraded", None, "begun")]


def test_a_listener_that_recovered_in_time_is_never_reported(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 42, "1.0", ["t"], 10)
    queue.call("touch_worker", "w", {"listener": "degraded"})
    queue.call("update_conditions")

    queue.call("touch_worker", "w", {"listener": "listening"})

    assert queue.call("update_conditions") == 0
    assert alerts(queue) == []


def bounded(queue: Queue, limit: int) -> None:
    queue.rows("SELECT messages.update_conditions(%s)", [limit])


def test_runs_are_bounded_and_each_topic_has_its_turn(queue: Queue) -> None:
    topics = ["a", "b", "c", "d", "e"]
    for topic in topics:
        queue.publish(topic, wait="-1 hour")

    found = []
    for _ in range(4):
        bounded(queue, 2)
        found.append(len(alerts(queue)))

    assert found == [2, 4, 5, 5]
    assert alerts(queue) == [("no_worker", topic, "begun") for topic in topics]


def test_a_condition_ends_when_its_topic_has_its_turn_and_not_before(queue: Queue) -> None:
    for topic in ("a", "b", "c"):
        queue.publish(topic, wait="-1 hour")
    bounded(queue, 10)
    for topic in ("a", "b", "c"):
        queue.call("purge_topic", topic)
        queue.publish(topic)

    bounded(queue, 2)
    after_one = alerts(queue)[3:]
    bounded(queue, 2)

    assert after_one == [("no_worker", "a", "ended"), ("no_worker", "b", "ended")]
    assert alerts(queue)[5:] == [("no_worker", "c", "ended")]


def test_a_condition_of_a_topic_that_is_gone_ends_also_between_two_runs(queue: Queue) -> None:
    for topic in ("a", "b", "c"):
        queue.publish(topic, wait="-1 hour")
    bounded(queue, 10)
    queue.call("purge_topic", "c")
    queue.call("purge_topic", "a")

    for _ in range(3):
        bounded(queue, 1)

    assert alerts(queue)[3:] == [("no_worker", "a", "ended"), ("no_worker", "c", "ended")]


# messages.close_incidents: ends the incidents of a sink that are over.


@pytest.fixture
def _stopped(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")


def close(queue: Queue, **rules: object) -> int:
    ended: int = queue.value("SELECT messages.close_incidents('ops', %s)", [Jsonb({**RULES, **rules})])
    return ended


@pytest.mark.usefixtures("_stopped")
def test_an_incident_with_an_unsent_notification_is_not_closed(queue: Queue) -> None:
    sink = Sink(queue)
    raise_alert(queue)
    sink.next()
    sink.settle(sink.next(), "no answer", retry_in="1 hour")
    raise_alert(queue)
    sink.next()
    queue.later("1 hour")

    assert close(queue) == 0


# messages.open_breakers: topics that their breaker stops.


def open_breaker(queue: Queue, topic: str) -> None:
    queue.conn.execute(
        "INSERT INTO messages.breaker (topic, position, probe_at, reason) "
        "VALUES (%s, 'open', messages.now() + interval '10 minutes', '5 of 5 failed')",
        [topic],
    )


def test_it_lists_open_breakers_and_no_closed_or_removed_one(queue: Queue) -> None:
    queue.policy("mail", breaker={"pause": "10m"})
    open_breaker(queue, "mail")
    open_breaker(queue, "without.policy")

    found = queue.rows("SELECT * FROM messages.open_breakers()")

    assert [(row.topic, row.what) for row in found] == [("mail", "the breaker of mail is open: 5 of 5 failed")]
    queue.conn.execute("UPDATE messages.breaker SET position = 'closed', probe_at = NULL")
    assert queue.rows("SELECT * FROM messages.open_breakers()") == []
