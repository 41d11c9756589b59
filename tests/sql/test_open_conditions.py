"""messages.open_conditions: what the last tick found wrong, and the breakers that are open now."""

from __future__ import annotations

from tests.sql.queue import Queue
from tests.sql.test_open_breakers import open_breaker


def found(queue: Queue) -> list[tuple[str, str, str | None]]:
    return [(row.kind, row.level, row.topic) for row in queue.rows("SELECT * FROM messages.open_conditions()")]


def test_it_has_the_conditions_of_the_last_tick_and_the_open_breakers_the_worst_first(queue: Queue) -> None:
    queue.policy("mail", breaker={"pause": "10m"})
    open_breaker(queue, "mail")
    queue.publish("orphan", wait="-10 minutes")
    assert found(queue) == [("breaker", "warn", "mail")]

    queue.call("update_conditions")

    assert found(queue) == [("no_worker", "fail", "orphan"), ("breaker", "warn", "mail")]


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
    assert levels == {(codes[kind], level) for kind, level, _ in found(queue)}
    assert "stopped" not in " ".join(row.what for row in doctor)


def test_without_a_problem_it_has_no_row(queue: Queue) -> None:
    queue.publish()
    queue.call("update_conditions")

    assert found(queue) == []
