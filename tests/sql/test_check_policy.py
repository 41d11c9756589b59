"""check_policy: the error of an invalid setting has the setting, the value and the fix, no matter who writes it."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors, sql
from psycopg.types.json import Jsonb

from tests.sql.queue import Queue

COUNT = "use 1 or more, or 0 for no limit"
RATE = "use messages per second from 0.000001 to 1000000, or 0 for no limit"
KEEP = "use an interval from 1 hour to 36500 days"

BAD = [
    ("max_attempts", -1, "-1", COUNT),
    ("lock_duration", "0 s", "00:00:00", "use an interval from 100 ms to 7 days"),
    ("lock_duration", "8 days", "8 days", "use an interval from 100 ms to 7 days"),
    ("timeout", "0 s", "00:00:00", "use an interval from 1 ms to 30 days"),
    ("lock_expired_delay", "-1 s", "-00:00:01", "use an interval from 0 to 30 days"),
    ("key_ttl", "366 days", "366 days", "use an interval up to 365 days, or 0 for none"),
    ("key_on_retry", "drop", "drop", "use supersede or keep"),
    ("ttl", "-1 s", "-00:00:01", "use an interval up to 3650 days, or 0 for none"),
    ("max_depth", -1, "-1", COUNT),
    ("on_full", "panic", "panic", "use error or drop"),
    ("max_payload_bytes", 0, "0", "use 1 to 16777216"),
    ("max_concurrency", -5, "-5", COUNT),
    ("dequeue_rate", -0.5, "-0.5", RATE),
    ("dequeue_rate", "NaN", "NaN", RATE),
    ("dequeue_rate", 1e-300, "1e-300", RATE),
    ("burst", 0, "0", "use 1 to 1000000"),
    ("publish_rate", 2000000, "2000000", RATE),
    ("channel_concurrency", -1, "-1", COUNT),
    ("channel_min_interval", "31 days", "31 days", "use an interval up to 30 days, or 0 for none"),
    ("archive_success", "some", "some", "use full, no_payload or none"),
    ("retention", "1 minute", "00:01:00", KEEP),
    ("retention", "9999 years", "9999 years", KEEP),
    ("max_redrives", -1, "-1", COUNT),
    ("notify", "sometimes", "sometimes", "use auto, always or off"),
    ("payload_schema", Jsonb([1]), "[1]", "use a JSON Schema: an object, or true for whatever JSON"),
]


@pytest.mark.parametrize(("setting", "value", "shown", "fix"), BAD, ids=[f"{row[0]}={row[2]}" for row in BAD])
def test_an_invalid_value_is_refused_with_topic_setting_value_and_fix(
    queue: Queue, setting: str, value: Any, shown: str, fix: str
) -> None:
    with pytest.raises(errors.InvalidParameterValue) as caught:
        queue.policy("mail", **{setting: value})

    assert caught.value.diag.message_primary == f"{setting} of topic mail is {shown}"
    assert caught.value.diag.message_hint == fix


@pytest.mark.parametrize("topic", ["a b", "", "a\n", "**", "x" * 201])
def test_a_policy_needs_a_name_that_a_topic_may_have(queue: Queue, topic: str) -> None:
    with pytest.raises(errors.InvalidParameterValue) as caught:
        queue.conn.execute("INSERT INTO messages.topic (topic) VALUES (%s)", [topic])

    assert caught.value.diag.message_primary == f'"{topic}" is no name of a topic'
    assert "letter or digit first" in (caught.value.diag.message_hint or "")


@pytest.mark.parametrize(
    "setting",
    [
        "lock_duration",
        "backoff",
        "strict_lock",
        "key_on_retry",
        "on_full",
        "ordered",
        "archive_success",
        "retention",
        "dead_letter",
        "max_redrives",
        "notify",
        "accept_publishes",
    ],
)
def test_required_defaults_cannot_be_removed(queue: Queue, setting: str) -> None:
    with pytest.raises(errors.InvalidParameterValue) as caught:
        queue.policy("*", **{setting: None})

    assert caught.value.diag.message_primary == f"{setting} of the defaults is not set"
    assert caught.value.diag.message_hint == "topics inherit it from here: set a value"


def test_optional_defaults_can_be_removed(queue: Queue) -> None:
    queue.policy("*", max_attempts=None, timeout=None)

    assert queue.value("SELECT max_attempts FROM messages.topic WHERE topic = '*'") is None


def test_with_every_setting_at_its_bound_messages_are_run_and_the_maintenance_succeeds(queue: Queue) -> None:
    """No sum of times overflows."""
    long = {
        "kind": "linear",
        "base": "10 years",
        "step": "10 years",
        "cap": "10 years",
        "jitter": 1,
        "max_total": "10 years",
    }
    queue.policy("*", retention="36500 days")
    queue.policy(
        retention="36500 days", lock_duration="7 days", timeout="30 days", lock_expired_delay="30 days", key_ttl="365 days",
        ttl="3650 days", channel_min_interval="30 days", dequeue_rate=0.000001, publish_rate=0.000001, burst=1000000,
        max_attempts=0, backoff=long, breaker={"window": "1 day", "pause": "1 day"},
    )  # fmt: skip
    queue.publish_many(3, channel="c", key=sql.SQL("'k' || n"))

    for settle, why in (("complete", []), ("retry", [["boom"]])):
        queue.settle(settle, queue.claim(limit=1), *why)
        queue.later("31 days")
    queue.claim(limit=1)
    queue.later("31 days")

    assert [row.task for row in queue.rows("SELECT * FROM messages.tick()") if row.count < 0] == []
    queue.policy(burst=1)
    queue.rows("SELECT * FROM messages.claim('w', '{t}', 1)")
