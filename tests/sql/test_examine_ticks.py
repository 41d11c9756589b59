"""messages.examine_ticks: whether somebody does the maintenance."""

from __future__ import annotations

from tests.sql.examined import examine, undone
from tests.sql.queue import Queue


def tick(queue: Queue) -> None:
    queue.rows("SELECT * FROM messages.tick()")


def test_a_queue_that_is_ticked_is_well(queue: Queue) -> None:
    tick(queue)

    assert examine(queue, "ticks").wrong == {}


def test_a_queue_that_nobody_ever_ticked_is_told_so(queue: Queue) -> None:
    found = examine(queue, "ticks").of("ticks")

    assert found.level == "fail"
    assert "the maintenance has never run" in found.what
    assert "pgrouse run" in found.fix


def test_ticks_that_ended_are_told_with_since_when(queue: Queue) -> None:
    tick(queue)
    queue.later("10 minutes")

    found = examine(queue, "ticks").of("ticks")

    assert found.level == "fail"
    assert "for 600 s" in found.what


def test_a_task_that_fails_at_each_tick_is_named(queue: Queue) -> None:
    tick(queue)
    queue.conn.execute("UPDATE messages.tick_mark SET ran_at = ran_at - interval '10 minutes'")
    broken = (
        "CREATE OR REPLACE FUNCTION messages.prune() RETURNS bigint LANGUAGE plpgsql AS $$BEGIN RAISE 'broken'; END$$"
    )
    with undone(queue, broken):
        tick(queue)
        found = examine(queue, "ticks")

    assert found.wrong == {"tick_tasks": "fail"}
    assert found.of("tick_tasks").what.startswith("prune fails at each tick since")


def test_expired_locks_that_nobody_sweeps_are_found_and_swept(queue: Queue) -> None:
    tick(queue)
    queue.publish()
    queue.claim()
    queue.later("2 minutes")

    found = examine(queue, "ticks")
    queue.conn.execute("SELECT messages.expire_locks()")

    assert found.wrong == {"expired_locks": "fail"}
    assert found.of("expired_locks").what.startswith("1 messages wait")
    assert "expired_locks" not in examine(queue, "ticks").wrong


def test_a_schedule_that_does_not_fire_is_found_and_fired(queue: Queue) -> None:
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
