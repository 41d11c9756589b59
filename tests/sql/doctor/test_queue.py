"""The doctor's checks of conditions, ticks, topics and workers."""

from __future__ import annotations

import pytest

from pgrouse.doctor import sql_checks
from tests.server.postgres import Database
from tests.sql.deaths import die
from tests.sql.examined import examine, rolled_back
from tests.sql.queue import Queue

# messages.doctor: all parts at once.

DOCTOR = "SELECT * FROM messages.doctor()"


def test_it_returns_at_least_one_row_for_every_code(queue: Queue) -> None:
    found = queue.rows(DOCTOR)

    assert {row.code for row in found} == {code for codes in sql_checks.PARTS.values() for code in codes}
    assert {row.level for row in found} <= {"ok", "warn", "fail"}
    assert [row for row in found if row.level != "ok" and not row.fix] == []


def test_it_changes_nothing_and_runs_in_a_read_only_transaction(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SET TRANSACTION READ ONLY")
        assert queue.rows(DOCTOR)


def test_analysts_and_operators_see_all_of_it_too(queue: Queue) -> None:
    for role in ("messages_analyst", "messages_operator"):
        with queue.conn.transaction():
            queue.conn.execute(f"SET LOCAL ROLE {role}".encode())
            assert [row for row in queue.rows(DOCTOR) if row.code == "unexamined"] == []


def test_a_part_that_fails_reports_why_and_the_other_parts_continue(queue: Queue, database: Database) -> None:
    holder = Queue(database.connect())
    holder.conn.execute("BEGIN")
    holder.conn.execute("LOCK TABLE messages.schedule")
    queue.conn.execute("SET lock_timeout = '100ms'")

    found = queue.rows(DOCTOR)

    unexamined = [row for row in found if row.code == "unexamined"]
    assert {row.what.split(":")[0] for row in unexamined} == {"ticks", "topics", "workers"}
    assert "lock timeout" in unexamined[0].what
    assert "table_lock" in unexamined[0].fix
    assert "backlog" in {row.code for row in found}


def test_a_missing_right_is_reported_with_the_role_that_has_it(queue: Queue) -> None:
    queue.conn.execute("SET ROLE messages_operator")
    try:
        queue.conn.execute("RESET ROLE")
        queue.conn.execute("REVOKE EXECUTE ON FUNCTION messages.examine_ticks FROM messages_operator")
        queue.conn.execute("SET ROLE messages_operator")
        (row,) = [row for row in queue.rows(DOCTOR) if row.code == "unexamined"]
    finally:
        queue.conn.execute("RESET ROLE")
        queue.conn.execute("GRANT EXECUTE ON FUNCTION messages.examine_ticks TO messages_operator")

    assert row.what.startswith("ticks: permission denied")
    assert row.fix == "GRANT messages_operator TO messages_operator;"


# messages.examine_conditions: backlogs, dead messages, breakers, undelivered alerts.


def test_a_queue_that_keeps_up_has_no_finding(queue: Queue) -> None:
    found = examine(queue, "conditions")

    assert found.wrong == {}
    assert sorted({row.code for row in found.rows}) == ["alerts", "backlog", "breakers", "dead_rate"]


def test_messages_that_are_ready_for_too_long_are_found(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 1, "1.0", ["t"], 10)
    queue.publish(wait="-1 hour")

    found = examine(queue, "conditions")

    assert found.wrong == {"backlog": "fail"}
    assert "messages of t have been ready" in found.of("backlog").what


def test_a_topic_with_many_dead_messages_is_found(queue: Queue) -> None:
    queue.conn.execute("UPDATE messages.alert_threshold SET dead_per_hour = 2 WHERE topic = '*'")
    for _ in range(3):
        die(queue)

    found = examine(queue, "conditions")

    assert found.wrong == {"dead_rate": "fail"}
    assert "of t died" in found.of("dead_rate").what


def test_an_open_breaker_is_a_failure_as_its_alert_pages(queue: Queue) -> None:
    queue.policy("t", breaker={"failure_rate": 0.5, "min_attempts": 2, "window": "1m", "pause": "1m"})
    queue.conn.execute(
        "INSERT INTO messages.breaker (topic, position, probe_at, reason) VALUES ('t', 'open', now(), '9 of 10 failed')"
    )

    found = examine(queue, "conditions")

    assert found.wrong == {"breakers": "fail"}
    assert "the breaker of t is open: 9 of 10 failed" in found.of("breakers").what


def test_alerts_that_a_sink_refuses_or_that_were_given_up_are_found(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.alert_sink (name, type, failing_since, failures) "
        "VALUES ('mail', 'smtp', now() - interval '1 hour', 9)"
    )
    queue.conn.execute(
        """
        INSERT INTO messages.alert_delivery (sink, message, rules, grouped, first_alert_id, last_alert_id, abandoned_at)
        VALUES ('mail', '{}', '{}', '{}', 1, 1, now())
        """
    )

    found = examine(queue, "conditions")

    assert found.wrong == {"alerts": "fail"}
    assert "sink mail has failed since" in found.text_of("alerts")
    assert "1 message to the sink mail was abandoned" in found.text_of("alerts")


# messages.examine_ticks: whether the maintenance runs.


def tick(queue: Queue) -> None:
    queue.rows("SELECT * FROM messages.tick()")


def test_a_queue_with_ticks_has_no_finding(queue: Queue) -> None:
    tick(queue)

    assert examine(queue, "ticks").wrong == {}


def test_a_queue_that_never_ticked_is_reported(queue: Queue) -> None:
    found = examine(queue, "ticks").of("ticks")

    assert found.level == "fail"
    assert "the maintenance has never run" in found.what
    assert "pgrouse run" in found.fix


def test_ticks_that_stopped_are_reported_with_the_last_time(queue: Queue) -> None:
    tick(queue)
    queue.later("10 minutes")

    found = examine(queue, "ticks").of("ticks")

    assert found.level == "fail"
    assert "for 600 s" in found.what


def test_a_task_that_fails_at_each_tick_is_reported(queue: Queue) -> None:
    tick(queue)
    queue.conn.execute("UPDATE messages.tick_mark SET ran_at = ran_at - interval '10 minutes'")
    broken = (
        "CREATE OR REPLACE FUNCTION messages.prune() RETURNS bigint LANGUAGE plpgsql AS $$BEGIN RAISE 'broken'; END$$"
    )
    with rolled_back(queue, broken):
        tick(queue)
        found = examine(queue, "ticks")

    assert found.wrong == {"tick_tasks": "fail"}
    assert found.of("tick_tasks").what.startswith("prune fails at each tick since")


def test_expired_locks_that_remain_are_found_and_the_fix_ends_them(queue: Queue) -> None:
    tick(queue)
    queue.publish()
    queue.claim()
    queue.later("2 minutes")

    found = examine(queue, "ticks")
    queue.conn.execute("SELECT messages.expire_locks()")

    assert found.wrong == {"expired_locks": "fail"}
    assert found.of("expired_locks").what.startswith("1 messages wait")
    assert "expired_locks" not in examine(queue, "ticks").wrong


def test_a_schedule_that_does_not_fire_is_found_and_the_fix_fires_it(queue: Queue) -> None:
    tick(queue)
    queue.schedule("nightly", "* * * * *")
    queue.conn.execute("UPDATE messages.schedule SET next_tick = messages.now() - interval '10 minutes'")

    found = examine(queue, "ticks")
    queue.conn.execute("SELECT messages.fire_schedules()")

    assert found.wrong == {"schedules": "fail"}
    assert "the schedule nightly is due since" in found.of("schedules").what
    assert examine(queue, "ticks").wrong == {}


def test_a_schedule_that_fails_is_found_with_its_reason(queue: Queue) -> None:
    tick(queue)
    queue.policy("full", max_depth=1)
    queue.publish("full")
    queue.schedule("eager", "* * * * *", topic="full")
    queue.conn.execute("UPDATE messages.schedule SET next_tick = messages.now() - interval '10 minutes'")
    queue.conn.execute("SELECT messages.fire_schedules()")

    found = examine(queue, "ticks").of("schedules")

    assert found.level == "fail"
    assert found.what.startswith("the schedule eager has failed 1 times in a row: ")


# messages.examine_topics: paused topics, and locks shorter than the runs of their topic.

# Fifty runs in the bucket with the upper bound 0.0001 s * 2^(38/2): about 45 s.
RUNS = """
    INSERT INTO messages.measure (minute, topic, runs)
    SELECT date_trunc('minute', messages.now()), 'slow', messages.pack_histogram('{"38": 50}')
"""


def test_without_pauses_and_with_long_locks_there_is_no_finding(queue: Queue) -> None:
    found = examine(queue, "topics")

    assert found.wrong == {}
    assert {row.what for row in found.rows} == {
        "nothing is paused",
        "each lock outlasts the runs of its topic",
        "each tick looks at all topics",
    }


def test_a_pause_is_reported_with_the_call_that_ends_it_and_is_no_problem(queue: Queue) -> None:
    queue.call("pause", "mail", reason="smtp is down")
    queue.call("pause", "mail", channel="berlin")
    queue.schedule("nightly")
    queue.call("pause_schedule", "nightly")

    found = examine(queue, "topics")
    for row in found.rows:
        if row.fix:
            queue.conn.execute(row.fix.encode())

    assert found.wrong == {}
    assert "mail has been paused since" in found.text_of("paused")
    assert "smtp is down" in found.text_of("paused")
    assert "the channel berlin of mail has been paused" in found.text_of("paused")
    assert "the schedule nightly has been paused" in found.text_of("paused")
    assert examine(queue, "topics").of("paused").what == "nothing is paused"


def test_a_lock_that_is_shorter_than_the_slowest_runs_of_its_topic_is_found(queue: Queue) -> None:
    queue.policy("slow", lock_duration="10 s")
    queue.conn.execute(RUNS)

    found = examine(queue, "topics")

    assert found.wrong == {"short_locks": "warn"}
    assert "and its lock lasts 10 s" in found.of("short_locks").what
    assert found.of("short_locks").fix.startswith("pgrouse topic set slow lock_duration=")
    queue.policy("slow", lock_duration="10 minutes")
    assert examine(queue, "topics").wrong == {}


def test_more_topics_than_one_tick_visits_are_found(queue: Queue) -> None:
    publish = "INSERT INTO messages.message (topic, payload) SELECT 't' || n, '1' FROM generate_series(1, %s) AS n"
    queue.conn.execute(publish, [2000])
    assert examine(queue, "topics").wrong == {}

    queue.publish("one.more")

    found = examine(queue, "topics")
    assert found.wrong == {"many_topics": "warn"}
    assert "pgrouse topic purge" in found.of("many_topics").fix


# messages.examine_workers: whether every topic that needs a worker has one, whether workers receive notifications, and
# their versions.


def start(queue: Queue, name: str = "w", *topics: str, version: str = "1.0", listener: str = "listening") -> None:
    queue.call("register_worker", name, "h1", 42, version, list(topics), 10)
    queue.conn.execute(
        "UPDATE messages.worker SET started_at = started_at - interval '1 minute', status = "
        "jsonb_build_object('listener', %s::text) WHERE name = %s",
        [listener, name],
    )


def test_with_a_listening_worker_there_is_no_finding(queue: Queue) -> None:
    start(queue, "w", "t")
    queue.publish("t")

    assert examine(queue, "workers").wrong == {}


def test_a_queue_that_never_had_a_worker_is_warned_about(queue: Queue) -> None:
    found = examine(queue, "workers")

    assert found.wrong == {"workers": "warn"}
    assert "pgrouse run" in found.of("workers").fix


def test_a_worker_that_left_without_unregistering_is_reported_until_its_row_is_deleted(queue: Queue) -> None:
    start(queue, "lives", "t")
    start(queue, "gone", "t")
    queue.conn.execute("UPDATE messages.worker SET seen_at = seen_at - interval '5 minutes' WHERE name = 'gone'")

    found = examine(queue, "workers")
    queue.conn.execute(found.of("workers_gone").fix.split(": ")[1].encode())

    assert found.wrong == {"workers_gone": "warn"}
    assert found.of("workers_gone").what.startswith("gone (process 42 on h1) was last seen 300 s ago")
    assert examine(queue, "workers").wrong == {}


def test_that_no_worker_is_alive_is_one_finding(queue: Queue) -> None:
    queue.later("31 s")
    start(queue, "gone", "t")
    queue.conn.execute("UPDATE messages.worker SET seen_at = seen_at - interval '5 minutes'")
    queue.publish("t")
    queue.publish("u")
    queue.schedule("nightly", topic="report")

    found = examine(queue, "workers")

    assert found.wrong == {"workers": "fail"}
    assert found.of("workers").what.startswith("no worker is alive: gone was last seen at ")
    assert [found.of(code).what for code in ("workers_gone", "unhandled_topics", "idle_topics")] == ["see workers"] * 3


def test_workers_of_several_versions_are_reported(queue: Queue) -> None:
    start(queue, "old", "t", version="0.9")
    start(queue, "new", "t", version="1.0")
    start(queue, "newer", "t", version="1.0")

    found = examine(queue, "workers")

    assert found.wrong == {"worker_versions": "warn"}
    assert "0.9 (1), 1.0 (2)" in found.of("worker_versions").what


@pytest.mark.parametrize("mode", ["degraded", "connecting"])
def test_a_worker_without_notifications_is_reported(queue: Queue, mode: str) -> None:
    start(queue, "polling", "t", listener=mode)

    found = examine(queue, "workers")

    assert found.wrong == {"listeners": "warn"}
    assert f"polling receives no notifications ({mode})" in found.of("listeners").what
    assert "listen_dsn" in found.of("listeners").fix


def test_a_worker_that_has_just_started_may_connect_but_not_be_degraded(queue: Queue) -> None:
    for name, mode in (("new", "connecting"), ("polling", "degraded")):
        queue.call("register_worker", name, "host", 1, "1.0", ["t"], 10)
        queue.call("touch_worker", name, f'{{"listener": "{mode}"}}')

    found = examine(queue, "workers")

    assert found.wrong == {"listeners": "warn"}
    assert found.of("listeners").what.startswith("polling receives")


def test_a_topic_whose_messages_wait_without_a_worker_is_reported(queue: Queue) -> None:
    start(queue, "w", "t")
    queue.publish("orphan")

    found = examine(queue, "workers")

    assert found.wrong == {"unhandled_topics": "warn"}
    assert "messages of orphan wait" in found.of("unhandled_topics").what


def test_a_topic_without_a_worker_is_a_failure_when_it_is_one_for_the_alerts(queue: Queue) -> None:
    start(queue, "w", "t")
    queue.publish("orphan", wait="-10 minutes")

    assert [row.kind for row in queue.rows("SELECT kind FROM messages.conditions()")] == ["no_worker"]
    assert examine(queue, "workers").wrong == {"unhandled_topics": "fail"}

    queue.call("pause", "orphan")

    assert queue.rows("SELECT kind FROM messages.conditions()") == []
    assert examine(queue, "workers").wrong == {}


def test_dead_letters_need_no_worker(queue: Queue) -> None:
    start(queue, "w", "t")
    queue.policy("t", dead_letter=True)
    queue.publish("t")
    queue.settle("fail", queue.claim("t"), ["boom"])

    assert queue.rows("SELECT FROM messages.message WHERE topic = 't.dlq'")
    assert examine(queue, "workers").wrong == {}


def test_a_schedule_and_a_subscription_whose_topic_has_no_worker_are_reported_before_a_message_waits(
    queue: Queue,
) -> None:
    start(queue, "w", "t")
    queue.schedule("nightly", topic="report")
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 'report')")

    found = examine(queue, "workers")

    assert found.wrong == {"idle_topics": "warn"}
    assert found.of("idle_topics").what.startswith("the schedule nightly, the subscription to t publishes to report")
