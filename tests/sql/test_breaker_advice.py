"""breaker_advice: what is told of an open breaker and what the conditions say of it are the same."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_an_alert_and_the_condition_advise_the_same(queue: Queue) -> None:
    queue.policy(breaker={"min_attempts": 2, "pause": "10m"})
    queue.publish_many(4)
    queue.settle("fail", queue.claim(limit=2), ["boom"] * 2)

    alert = queue.value("SELECT fix FROM messages.alert WHERE kind = 'breaker'")
    condition = queue.value("SELECT fix FROM messages.conditions() WHERE kind = 'breaker'")

    assert alert == condition == queue.call("breaker_advice", "t")
    assert "`pgrouse topic show t`" in alert
