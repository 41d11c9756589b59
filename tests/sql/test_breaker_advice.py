"""breaker_advice: the alert and the condition of an open breaker have the same advice."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_an_alert_and_the_condition_have_the_same_advice(queue: Queue) -> None:
    queue.policy(breaker={"min_attempts": 2, "pause": "10m"})
    queue.publish_many(4)
    queue.settle("fail", queue.claim(limit=2), ["boom"] * 2)

    alert = queue.value("SELECT fix FROM messages.alert WHERE kind = 'breaker'")
    condition = queue.value("SELECT fix FROM messages.conditions() WHERE kind = 'breaker'")

    assert alert == condition == queue.call("breaker_advice", "t")
    assert "`pgrouse topic show t`" in alert
