"""messages.tell_breaker: what the world hears of a breaker."""

from __future__ import annotations

from collections.abc import Callable

from tests.sql.queue import Ear, Queue

BREAKER = {"min_attempts": 4, "pause": "30s", "probes": 2}


def test_opening_and_closing_are_told_and_leave_an_alert(queue: Queue, listen: Callable[..., Ear]) -> None:
    queue.policy(breaker=BREAKER)
    ear = listen("topic_changed")
    queue.publish_many(20)

    queue.settle("fail", queue.claim(limit=4), ["boom"] * 4)
    queue.later("31 s")
    queue.settle("complete", queue.claim())

    assert ear.heard() == ["t", "t"]
    alerts = queue.rows("SELECT topic, result, sample_error FROM messages.alert WHERE kind = 'breaker' ORDER BY id")
    assert [(a.topic, a.result) for a in alerts] == [("t", "open"), ("t", "closed")]
    assert alerts[0].sample_error.startswith("4 of 4 attempts failed")
