"""messages.silenced_until: until when a matching alert is silenced."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize(
    ("silence", "alert", "silenced"),
    [
        ({"topic": "orders.*"}, ("dead_message", "orders.new", "f"), True),
        ({"topic": "orders.*"}, ("dead_message", "orders", "f"), False),
        ({"topic": "*"}, ("cron_late", None, None), True),
        ({"kind": "backlog"}, ("backlog", "t", None), True),
        ({"kind": "backlog"}, ("no_worker", "t", None), False),
        ({"error_fingerprint": "f"}, ("dead_message", "t", "f"), True),
        ({"error_fingerprint": "f"}, ("dead_message", "t", "g"), False),
        ({"error_fingerprint": "f"}, ("dead_message", "t", None), False),
        ({"error_fingerprint": "f", "topic": "u"}, ("dead_message", "t", "f"), False),
    ],
)
def test_an_alert_must_match_all_of_a_silence(
    queue: Queue, silence: dict[str, Any], alert: tuple[str | None, ...], silenced: bool
) -> None:
    queue.call("silence", **silence, **{"for": "1 hour"})

    assert (queue.call("silenced_until", *alert) is not None) is silenced


def test_the_longest_of_several_silences_counts_until_it_is_over(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    queue.call("silence", topic="t", **{"for": "1 hour"})
    queue.call("silence", topic="*", **{"for": "2 hours"})

    assert queue.call("silenced_until", "dead_message", "t", None) == queue.call("now") + timedelta(hours=2)
    queue.later("2 hours")
    assert queue.call("silenced_until", "dead_message", "t", None) is None
