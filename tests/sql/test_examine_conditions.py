"""messages.examine_conditions: backlogs, dead messages, breakers, undelivered alerts."""

from __future__ import annotations

from tests.sql.deaths import die
from tests.sql.examined import examine
from tests.sql.queue import Queue


def test_a_queue_that_keeps_up_has_no_finding(queue: Queue) -> None:
    found = examine(queue, "conditions")

    assert found.wrong == {}
    assert sorted({row.code for row in found.rows}) == ["alerts", "backlog", "breakers", "dead_rate"]


def test_messages_that_are_ready_for_too_long_are_found(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 1, "1.0", ["t"], 10)
    queue.publish(wait="-1 hour")

    found = examine(queue, "conditions")

    assert found.wrong == {"backlog": "warn"}
    assert "messages of t have been ready" in found.of("backlog").what


def test_a_topic_with_many_dead_messages_is_found(queue: Queue) -> None:
    queue.conn.execute("UPDATE messages.alert_threshold SET dead_per_hour = 2 WHERE topic = '*'")
    for _ in range(3):
        die(queue)

    found = examine(queue, "conditions")

    assert found.wrong == {"dead_rate": "warn"}
    assert "of t died" in found.of("dead_rate").what


def test_an_open_breaker_is_a_warning(queue: Queue) -> None:
    queue.policy("t", breaker={"failure_rate": 0.5, "min_attempts": 2, "window": "1m", "pause": "1m"})
    queue.conn.execute(
        "INSERT INTO messages.breaker (topic, position, probe_at, reason) VALUES ('t', 'open', now(), '9 of 10 failed')"
    )

    found = examine(queue, "conditions")

    assert found.wrong == {"breakers": "warn"}
    assert "the breaker of t is open: 9 of 10 failed" in found.of("breakers").what


def test_alerts_that_a_sink_refuses_or_that_were_given_up_are_found(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.alert_sink (name, type, failing_since, failures) VALUES ('mail', 'smtp', now() - interval '1 hour', 9)"
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
    assert "1 messages to the sink mail were abandoned" in found.text_of("alerts")
