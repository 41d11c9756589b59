"""messages.claim_policy: the policy of one topic at one moment; its own row wins over the row '*'."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.sql.queue import Queue, Row


def policy(queue: Queue, topic: str = "t") -> Row:
    return queue.row("SELECT * FROM messages.claim_policy(%s, messages.now())", [topic])


def test_a_topic_without_its_own_row_has_the_defaults_and_no_limit(queue: Queue) -> None:
    found = policy(queue)

    assert (found.topic, found.max_attempts, found.lock_duration.total_seconds(), found.ordered) == ("t", 1, 30, False)
    limits = (found.stopped_until, found.max_concurrency, found.dequeue_rate, found.probes, found.channel_concurrency)
    assert limits == (None,) * 5
    assert (found.is_limited, found.limits_channels) == (False, False)


@pytest.mark.parametrize(
    ("setting", "default", "own"),
    [
        ("max_attempts", 3, 7),
        ("max_concurrency", 3, 7),
        ("dequeue_rate", 3.5, 7.0),
        ("burst", 3, 7),
        ("channel_concurrency", 3, 7),
        ("ordered", True, False),
    ],
)
def test_the_topics_own_value_wins_over_the_default(queue: Queue, setting: str, default: Any, own: Any) -> None:
    queue.policy("*", **{setting: default})
    queue.policy("u", **{setting: own})

    assert (getattr(policy(queue, "t"), setting), getattr(policy(queue, "u"), setting)) == (default, own)


@pytest.mark.parametrize(
    ("setting", "none"),
    [
        ("max_attempts", 0),
        ("max_concurrency", 0),
        ("dequeue_rate", 0),
        ("channel_concurrency", 0),
        ("channel_min_interval", "0"),
    ],
)
def test_zero_in_the_row_of_a_topic_lifts_a_default_limit(queue: Queue, setting: str, none: Any) -> None:
    queue.policy("*", **{setting: "1 s" if setting == "channel_min_interval" else 3})
    queue.policy("t", **{setting: none})

    assert getattr(policy(queue), setting) is None
    assert (policy(queue).is_limited, policy(queue).limits_channels) == (False, False)


@pytest.mark.parametrize("settings", [{"max_concurrency": 1}, {"dequeue_rate": 1}])
def test_a_limit_of_the_whole_topic_limits_the_topic_and_not_its_channels(
    queue: Queue, settings: dict[str, Any]
) -> None:
    queue.policy(**settings)

    assert (policy(queue).is_limited, policy(queue).limits_channels) == (True, False)


@pytest.mark.parametrize("settings", [{"channel_concurrency": 1}, {"channel_min_interval": "1 s"}, {"ordered": True}])
def test_a_limit_of_channels_limits_the_channels_and_not_the_topic(queue: Queue, settings: dict[str, Any]) -> None:
    queue.policy(**settings)

    assert (policy(queue).is_limited, policy(queue).limits_channels) == (False, True)


def test_a_row_for_one_channel_limits_channels_in_its_topic_only(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.channel (topic, channel, concurrency) VALUES ('t', 'c', 1)")

    assert [policy(queue, topic).limits_channels for topic in ("t", "u")] == [True, False]


def test_an_expired_pause_of_a_channel_costs_its_topic_nothing(queue: Queue) -> None:
    queue.call("pause", "t", channel="acme", resume_in="1 minute")
    while_it_holds = policy(queue).limits_channels
    queue.later("2 minutes")

    assert (while_it_holds, policy(queue).limits_channels) == (True, False)


@pytest.mark.parametrize(("rate", "burst"), [(1, 1), (10, 1), (11, 2), (100, 10), (0.5, 1)])
def test_the_default_burst_is_a_tenth_of_a_second_of_the_rate(queue: Queue, rate: float, burst: int) -> None:
    queue.policy(dequeue_rate=rate)

    assert policy(queue).burst == burst


@pytest.mark.parametrize("paused", ["t", "*"])
def test_a_paused_topic_is_stopped_until_it_is_resumed(queue: Queue, paused: str) -> None:
    queue.policy(paused, paused_at="2026-01-01")

    assert queue.value("SELECT stopped_until = 'infinity' FROM messages.claim_policy('t', messages.now())") is True


def test_a_pause_with_an_end_stops_the_topic_until_then_and_no_longer(queue: Queue) -> None:
    queue.later("0")
    end = queue.value("SELECT messages.now() + interval '1 minute'")
    queue.policy(paused_at="2026-01-01", resume_at=end)
    assert policy(queue).stopped_until == end

    queue.later("1 minute")

    assert policy(queue).stopped_until is None


def test_of_two_pauses_the_longer_one_counts(queue: Queue) -> None:
    queue.policy("*", paused_at="2026-01-01", resume_at="2900-01-01 00:00+00")
    queue.policy("t", paused_at="2026-01-01", resume_at="2800-01-01 00:00+00")

    assert policy(queue).stopped_until == datetime.fromisoformat("2900-01-01 00:00+00:00")


def breaker(queue: Queue, position: str, probe_in: str | None = None) -> None:
    queue.policy(breaker={"probes": 2})
    queue.conn.execute(
        "INSERT INTO messages.breaker (topic, position, probe_at) VALUES ('t', %s, messages.now() + %s::interval)",
        [position, probe_in],
    )


def test_an_open_breaker_stops_the_topic_until_its_probe_and_then_allows_a_few(queue: Queue) -> None:
    queue.later("0")
    breaker(queue, "open", "10 s")
    assert policy(queue).stopped_until == queue.value("SELECT messages.now() + interval '10 s'")

    queue.later("10 s")

    assert (policy(queue).stopped_until, policy(queue).probes, policy(queue).is_limited) == (None, 2, True)


def test_a_closed_breaker_limits_nothing(queue: Queue) -> None:
    breaker(queue, "closed")

    assert (policy(queue).stopped_until, policy(queue).probes, policy(queue).is_limited) == (None, None, False)


def test_a_breaker_that_was_removed_from_the_policy_stops_nothing(queue: Queue) -> None:
    breaker(queue, "open", "1 hour")

    queue.conn.execute("UPDATE messages.topic SET breaker = NULL")

    assert policy(queue).stopped_until is None
