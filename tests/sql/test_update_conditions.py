"""messages.update_conditions: one alert when a condition begins, and one when it ends."""

from __future__ import annotations

from collections.abc import Callable

from tests.server.postgres import Database
from tests.sql.queue import Listener, Queue


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


def test_a_breaker_writes_its_own_alerts(queue: Queue) -> None:
    queue.policy("t", breaker={"pause": "10m"})
    queue.conn.execute(
        "INSERT INTO messages.breaker (topic, position, probe_at, reason) VALUES ('t', 'open', now(), 'x')"
    )

    assert queue.call("update_conditions") == 0


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
