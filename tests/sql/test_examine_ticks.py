"""messages.examine_ticks: whether the maintenance runs."""

from __future__ import annotations

from tests.sql.examined import examine, rolled_back
from tests.sql.queue import Queue


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
