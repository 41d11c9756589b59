"""messages.announce_breaker: the notifications and alerts of a breaker."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.sql.queue import Listener, Queue

BREAKER = {"min_attempts": 4, "pause": "30s", "probes": 2}


def test_opening_and_closing_send_a_notification_and_write_an_alert(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    queue.policy(breaker=BREAKER)
    listener = listen("topic_changed")
    queue.publish_many(20)

    queue.settle("fail", queue.claim(limit=4), ["boom"] * 4)
    queue.later("31 s")
    queue.settle("complete", queue.claim())

    assert listener.received() == ["t", "t"]
    alerts = queue.rows("SELECT topic, result, sample_error FROM messages.alert WHERE kind = 'breaker' ORDER BY id")
    assert [(a.topic, a.result) for a in alerts] == [("t", "open"), ("t", "closed")]
    assert alerts[0].sample_error.startswith("4 of 4 attempts failed")


def test_a_failed_probe_is_not_announced_as_a_second_opening(queue: Queue, listen: Callable[..., Listener]) -> None:
    queue.policy(breaker=BREAKER)
    listener = listen("topic_changed")
    queue.publish_many(20)
    queue.settle("fail", queue.claim(limit=4), ["boom"] * 4)

    for _ in range(3):
        queue.later("31 s")
        queue.settle("fail", queue.claim(), ["boom"] * 2)
    queue.later("31 s")
    queue.settle("complete", queue.claim())

    alerts = queue.rows("SELECT result, fix FROM messages.alert WHERE kind = 'breaker' ORDER BY id")
    assert [a.result for a in alerts] == ["open", "closed"]
    assert "pgrouse topic show t" in alerts[0].fix
    assert len(listener.received()) == 5, "a listener receives every change of the topic"


def test_an_open_breaker_that_is_removed_is_announced_as_closed(queue: Queue) -> None:
    queue.policy(breaker=BREAKER)
    queue.publish_many(20)
    queue.settle("fail", queue.claim(limit=4), ["boom"] * 4)
    queue.policy(breaker=None)

    queue.call("update_breakers")
    queue.call("update_breakers")

    alerts = queue.rows("SELECT result, sample_error FROM messages.alert WHERE kind = 'breaker' ORDER BY id")
    assert [a.result for a in alerts] == ["open", "closed"]
    assert alerts[1].sample_error == "the topic has no breaker any more"


def test_its_reason_formats_the_time_like_all_other_texts(queue: Queue) -> None:
    queue.policy(breaker=BREAKER)
    queue.publish_many(4)
    queue.settle("fail", queue.claim(limit=4), ["boom"] * 4)

    why = queue.value("SELECT sample_error FROM messages.alert WHERE kind = 'breaker'")

    assert re.fullmatch(r"4 of 4 attempts failed since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", why)
