"""messages.prune: deletes expired rows of side tables."""

from __future__ import annotations

from tests.sql.queue import Queue


def workers(queue: Queue) -> list[str]:
    return [row.name for row in queue.rows("SELECT name FROM messages.worker ORDER BY name")]


def sleepers(queue: Queue) -> list[str]:
    return [row.worker for row in queue.rows("SELECT worker FROM messages.sleeper ORDER BY worker")]


def test_workers_that_were_not_seen_for_an_hour_are_deleted(queue: Queue) -> None:
    for name in ("alive", "dead"):
        queue.call("register_worker", name, "host", 42, "1.0", ["t"], 10)
    queue.conn.execute(
        "UPDATE messages.worker SET seen_at = clock_timestamp() - CASE name WHEN 'dead' THEN '61 minutes' ELSE '59 minutes' END::interval"
    )

    assert queue.call("prune") == 1
    assert workers(queue) == ["alive"]


def test_a_worker_whose_row_is_locked_is_not_waited_for_and_deleted_later(queue: Queue, other: Queue) -> None:
    queue.call("register_worker", "held", "host", 42, "1.0", ["t"], 10)
    queue.conn.execute("UPDATE messages.worker SET seen_at = clock_timestamp() - interval '61 minutes'")
    other.conn.execute("SET lock_timeout = '2s'")

    with queue.conn.transaction():
        queue.call("drain_worker", "held")
        assert other.call("prune") == 0

    assert other.call("prune") == 1
    assert workers(queue) == []


def test_sleepers_whose_flag_expired_a_minute_ago_are_deleted(queue: Queue) -> None:
    queue.arm("asleep")
    queue.arm("just over", look_in="0 s")
    queue.arm("long over")
    queue.conn.execute(
        "UPDATE messages.sleeper SET armed_until = clock_timestamp() - interval '61 s' WHERE worker = 'long over'"
    )

    assert queue.call("prune") == 1
    assert sleepers(queue) == ["asleep", "just over"]


def test_a_daemon_that_died_awake_leaves_no_row_that_every_publish_would_read(queue: Queue) -> None:
    queue.arm("awake")
    queue.arm("died awake")
    for worker in ("awake", "died awake"):
        queue.call("disarm", worker)
    queue.conn.execute(
        "UPDATE messages.sleeper SET next_look_at = now() - interval '61 minutes' WHERE worker = 'died awake'"
    )

    assert queue.call("prune") == 1
    assert sleepers(queue) == ["awake"]


def test_entries_of_low_water_without_a_message_and_a_mark_are_deleted_occasionally(queue: Queue) -> None:
    queue.publish("waiting")
    queue.conn.execute(
        """
        INSERT INTO messages.low_water (topic, priority, at)
        SELECT 'gone.' || n, 5, NULL FROM generate_series(1, 3000) AS n
        UNION ALL VALUES ('waiting', 5, NULL), ('marked', 5, now())
        """
    )

    forgotten = queue.call("prune")

    assert 0 < forgotten < 300
    assert queue.value("SELECT count(*) FROM messages.low_water WHERE topic IN ('waiting', 'marked')") == 2


def test_a_second_call_finds_nothing(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 42, "1.0", ["t"], 10)
    queue.arm("w")

    assert queue.call("prune") == 0


def test_flags_that_the_sequences_lack_are_set_again(own_queue: Queue) -> None:
    own_queue.policy("t", max_depth=1)
    own_queue.rows("SELECT setval('messages.policy_topic_bits', 1)")

    own_queue.call("prune")

    assert own_queue.call("has_policies") is True
