"""messages.tick: one bounded run of each task of the maintenance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import errors

from tests.server.postgres import Database
from tests.sql.queue import Background, Listener, Queue

# messages.tick: one bounded run of all maintenance.

TASKS = [
    "propagate_missed_ends",
    "expire_locks",
    "expire_messages",
    "renotify_stale",
    "raise_low_water",
    "maintain_partitions",
    "purge",
    "recount_depth",
    "update_breakers",
    "fire_schedules",
    "update_conditions",
    "prune",
    "apply_missed_batch_changes",
]


def tick(queue: Queue, caller: str = "hand") -> dict[str, int]:
    return {row.task: row.count for row in queue.rows("SELECT * FROM messages.tick(%s)", [caller])}


def marks(queue: Queue) -> dict[tuple[str, str], int]:
    return {
        (row.task, row.caller): row.count for row in queue.rows("SELECT task, caller, count FROM messages.tick_mark")
    }


def test_it_runs_every_task_and_returns_their_results(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("new_message")
    queue.publish("stale", wait="-1 hour")
    queue.publish_many(2)
    queue.claim(lock_duration="0 s")
    queue.call("register_worker", "dead", "host", 42, "1.0", ["t"], 10)
    queue.conn.execute("UPDATE messages.worker SET seen_at = '2020-01-01'")
    queue.call("register_worker", "alive", "host", 43, "1.0", ["t"], 10)
    # By chance a prune also deletes the mark of an empty topic.
    queue.conn.execute("SELECT setseed(0.5)")

    did = tick(queue)

    assert list(did) == TASKS
    assert (did["expire_locks"], did["renotify_stale"], did["prune"]) == (2, 1, 1)
    assert listener.received() == ["stale"]


def test_with_nothing_to_do_it_does_nothing(queue: Queue) -> None:
    assert tick(queue) == dict.fromkeys(TASKS, 0)


@pytest.mark.parametrize("caller", ["cron", "daemon", "web", "hand"])
def test_each_task_leaves_a_mark_of_its_caller(queue: Queue, caller: str) -> None:
    tick(queue, caller)

    assert marks(queue) == {(task, caller): 0 for task in TASKS}
    assert queue.value("SELECT min(ran_at) > clock_timestamp() - interval '1 minute' FROM messages.tick_mark") is True


def test_a_mark_has_the_last_run_of_each_caller_so_that_a_missing_one_is_seen(queue: Queue) -> None:
    tick(queue, "cron")
    queue.conn.execute("UPDATE messages.tick_mark SET ran_at = '2020-01-01'")

    tick(queue, "daemon")

    ages = dict(queue.rows("SELECT caller, bool_or(ran_at < '2021-01-01') FROM messages.tick_mark GROUP BY caller"))
    assert ages == {"cron": True, "daemon": False}


@pytest.mark.parametrize("caller", ["me", "", None])
def test_an_unknown_caller_is_refused(queue: Queue, caller: Any) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="caller of tick is") as caught:
        tick(queue, caller)

    assert caught.value.diag.message_hint == "use cron, daemon, web or hand"


def test_while_one_tick_runs_a_second_returns_nothing_at_once(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        assert list(tick(queue)) == TASKS
        assert tick(other) == {}

    assert list(tick(other)) == TASKS


def test_a_fleet_of_daemons_ticks_no_more_often_than_one(queue: Queue, other: Queue) -> None:
    unless = "SELECT task FROM messages.tick(%s, p_unless_within => %s)"
    assert len(queue.rows(unless, ["daemon", "1 minute"])) == len(TASKS)

    assert other.rows(unless, ["daemon", "1 minute"]) == []
    assert len(other.rows(unless, ["cron", "1 minute"])) == len(TASKS)

    queue.conn.execute("UPDATE messages.tick_mark SET ran_at = ran_at - interval '61 s'")
    assert len(other.rows(unless, ["daemon", "1 minute"])) == len(TASKS)


def test_a_tick_is_bounded(queue: Queue) -> None:
    queue.publish_many(5)
    queue.claim(lock_duration="0 s")

    did = [row.count for row in queue.rows("SELECT count FROM messages.tick('hand', 3) WHERE task = 'expire_locks'")]

    assert did == [3]


@pytest.mark.parametrize("failing", TASKS)
def test_one_failing_task_does_not_stop_the_others(own_database: Database, failing: str) -> None:
    queue = Queue(own_database.connect())
    notices: list[str | None] = []
    queue.conn.add_notice_handler(lambda d: notices.append(d.message_primary))
    result = queue.value(
        "SELECT pg_get_function_result(p.oid) FROM pg_proc AS p WHERE p.oid = ('messages.' || %s)::regproc", [failing]
    )
    signature = queue.value(
        "SELECT pg_get_function_arguments(p.oid) FROM pg_proc AS p WHERE p.oid = ('messages.' || %s)::regproc",
        [failing],
    )
    queue.conn.execute(
        f"CREATE OR REPLACE FUNCTION messages.{failing}({signature}) RETURNS {result} LANGUAGE plpgsql "
        "AS $$ BEGIN RAISE 'disk on fire'; END $$"
    )

    did = tick(queue)

    assert did == {task: -1 if task == failing else 0 for task in TASKS}
    assert notices == [f"tick: {failing} failed: disk on fire"]
    assert (failing, "hand") not in marks(queue)


def test_the_work_of_a_failing_task_is_rolled_back(own_database: Database) -> None:
    queue = Queue(own_database.connect())
    queue.publish_many(2)
    queue.claim(lock_duration="0 s")
    queue.conn.execute(
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
        CREATE TRIGGER refuse AFTER INSERT ON messages.message_archive FOR EACH STATEMENT EXECUTE FUNCTION refuse();
        """
    )

    assert tick(queue)["expire_locks"] == -1
    assert len(queue.ids()) == 2


def test_it_waits_for_a_lock_for_two_seconds_at_most(queue: Queue) -> None:
    assert "lock_timeout=2s" in queue.value("SELECT proconfig FROM pg_proc WHERE oid = 'messages.tick'::regproc")


@pytest.mark.parametrize(
    ("table", "failing"),
    [
        ("worker", ["update_conditions", "prune"]),
        (
            "message",
            [
                "expire_locks",
                "expire_messages",
                "renotify_stale",
                "raise_low_water",
                "purge",
                "update_conditions",
                "prune",
            ],
        ),
    ],
)
def test_a_table_that_is_locked_for_long_fails_its_tasks_until_the_next_tick(
    own_database: Database, table: str, failing: list[str]
) -> None:
    queue, other = (Queue(own_database.connect()) for _ in range(2))
    queue.conn.execute("ALTER FUNCTION messages.tick SET lock_timeout = '50ms'")
    queue.conn.execute("INSERT INTO messages.low_water SELECT 'gone.' || n, 5, NULL FROM generate_series(1, 3000) AS n")

    with other.conn.transaction():
        other.conn.execute(f"LOCK TABLE messages.{table} IN ACCESS EXCLUSIVE MODE".encode())
        did = tick(queue)

    assert [task for task in TASKS if did[task] == -1] == failing
    assert -1 not in tick(queue).values()


def test_settles_continue_while_a_tick_is_not_yet_committed(queue: Queue, other: Queue, background: Background) -> None:
    queue.publish_many(3)
    held = queue.claim(limit=1)
    queue.claim(lock_duration="0 s", limit=1)

    with queue.conn.transaction():
        tick(queue)
        assert other.settle("complete", held) == []
        assert len(other.claim()) == 1


def test_a_tick_by_hand_is_recorded_with_the_result_of_each_task_and_only_if_it_ran(queue: Queue, other: Queue) -> None:
    queue.publish_many(2)
    queue.claim(lock_duration="0 s")

    with queue.conn.transaction():
        did = tick(queue)
        assert tick(other) == {}

    (note,) = queue.rows("SELECT action, detail FROM messages.audit")
    assert (note.action, note.detail) == ("tick", {"count": did})
    assert did["expire_locks"] == 2


# messages.tick_topics: the topics that a task of the tick visits next.


def test_each_run_continues_behind_the_one_before_and_then_from_the_beginning(queue: Queue) -> None:
    for topic in "abcde":
        queue.publish(topic)

    runs = [queue.call("tick_topics", "renotify_stale", 2) for _ in range(4)]

    assert runs == [["a", "b"], ["c", "d"], ["e"], ["a", "b"]]


def test_each_task_has_a_walk_of_its_own(queue: Queue) -> None:
    for topic in "abc":
        queue.publish(topic)
    queue.call("tick_topics", "renotify_stale", 2)

    assert queue.call("tick_topics", "update_conditions", 2) == ["a", "b"]


# messages.run_maintenance: runs one task by hand, and records its result in the audit log.


@pytest.mark.parametrize("task", ["expire_locks", "expire_messages", "purge"])
def test_it_runs_the_task_and_writes_an_audit_entry(queue: Queue, task: str) -> None:
    queue.publish()
    queue.claim(lock_duration="0 s")
    queue.publish(expires_at="2020-01-01 00:00+00")
    queue.conn.execute(
        "INSERT INTO messages.alert (topic, result, delivered_at) VALUES ('t', 'failed', now() - interval '8 days')"
    )

    assert queue.call("run_maintenance", task) == 1

    (note,) = queue.rows("SELECT action, topic, target, detail FROM messages.audit")
    assert note == (task, None, None, {"count": 1})


@pytest.mark.parametrize("task", ["prune", "", None])
def test_an_unknown_task_is_refused(queue: Queue, task: Any) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="reaper is") as caught:
        queue.call("run_maintenance", task)

    assert caught.value.diag.message_hint == "use expire_locks, expire_messages or purge"
