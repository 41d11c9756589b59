"""messages.rule_interval: a duration in the rules of a sink."""

from __future__ import annotations

from datetime import timedelta

from tests.sql.queue import Queue


def test_it_is_an_interval_or_null(queue: Queue) -> None:
    assert queue.call("rule_interval", {"wait": 1.5}, "wait") == timedelta(seconds=1.5)
    assert queue.call("rule_interval", {"wait": 1.5}, "every") is None
