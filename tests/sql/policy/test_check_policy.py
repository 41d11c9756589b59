"""The policies that are refused, and what a change of a policy locks and announces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.types.json import Jsonb

from tests.sql.queue import Background, Listener, Queue

# check_policy: check_policy: the error of an invalid setting has the setting, the value and the fix, no matter who
# writes it.

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


@pytest.mark.parametrize("topic", ["a b", "", "a\n", "***", "x" * 201])
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
        retention="36500 days", lock_duration="7 days", timeout="30 days", lock_expired_delay="30 days",
        key_ttl="365 days",
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


# messages.check_backoff: which backoff policies are valid.


def check(queue: Queue, policy: Any) -> Any:
    return queue.row("SELECT * FROM messages.check_backoff(%s)", [Jsonb(policy)])


@pytest.mark.parametrize(
    "policy",
    [
        {"kind": "none"},
        {"kind": "constant", "base": "5s"},
        {"kind": "constant", "base": 5},
        {"kind": "linear", "base": "1 minute", "step": "30 s", "cap": "1 hour", "jitter": 0.25},
        {"kind": "exponential", "base": "1s", "factor": 1.5, "cap": "10m", "jitter": "full", "max_total": "1 day"},
        {"kind": "exponential", "jitter": "1.0"},
        {"kind": "exponential", "cap": None},
    ],
)
def test_every_documented_backoff_is_valid(queue: Queue, policy: dict[str, Any]) -> None:
    assert check(queue, policy) == (None, None)


def test_null_is_valid_and_means_the_default(queue: Queue) -> None:
    assert queue.row("SELECT * FROM messages.check_backoff(NULL)") == (None, None)


@pytest.mark.parametrize(
    ("policy", "problem", "fix"),
    [
        ({"kind": "exponential", "bsae": "1s"}, 'unknown key "bsae"', "known keys: kind, base"),
        ({"base": "1s"}, "kind is missing", "use none, constant, linear or exponential"),
        ({"kind": None}, "kind is missing", "use none, constant, linear or exponential"),
        ({"kind": "fibonacci"}, 'kind is "fibonacci"', "use none, constant, linear or exponential"),
        ({"kind": "constant", "jitter": "some"}, 'jitter is "some"', 'use "full" or a number from 0 to 1'),
        ({"kind": "constant", "jitter": 1.5}, 'jitter is "1.5"', 'use "full" or a number from 0 to 1'),
        ({"kind": "constant", "jitter": -0.5}, 'jitter is "-0.5"', 'use "full" or a number from 0 to 1'),
        ({"kind": "constant", "jitter": "NaN"}, 'jitter is "NaN"', 'use "full" or a number from 0 to 1'),
        ({"kind": "constant", "jitter": True}, 'jitter is "true"', 'use "full" or a number from 0 to 1'),
        ({"kind": "constant", "base": "soon"}, 'base is "soon"', "use an interval from 0 to 3650 days"),
        ({"kind": "constant", "base": "-1s"}, 'base is "-1s"', "use an interval from 0 to 3650 days"),
        ({"kind": "constant", "base": "11 years"}, 'base is "11 years"', "use an interval from 0 to 3650 days"),
        ({"kind": "constant", "base": "infinity"}, 'base is "infinity"', "use an interval from 0 to 3650 days"),
        ({"kind": "constant", "base": "1e30 s"}, 'base is "1e30 s"', "use an interval from 0 to 3650 days"),
        ({"kind": "constant", "base": {}}, 'base is "{}"', "use an interval from 0 to 3650 days"),
        ({"kind": "linear", "step": "-1s"}, 'step is "-1s"', "use an interval from 0 to 3650 days"),
        ({"kind": "constant", "cap": "-1s"}, 'cap is "-1s"', "use an interval from 0 to 3650 days"),
        ({"kind": "constant", "max_total": "-1s"}, 'max_total is "-1s"', "use an interval from 0 to 3650 days"),
        (
            {"kind": "constant", "max_total": "300000 years"},
            'max_total is "300000 years"',
            "use an interval from 0 to 3650 days",
        ),
        ({"kind": "exponential", "factor": 0.5}, 'factor is "0.5"', "use a number from 1 to 1000"),
        ({"kind": "exponential", "factor": 1001}, 'factor is "1001"', "use a number from 1 to 1000"),
        ({"kind": "exponential", "factor": "NaN"}, 'factor is "NaN"', "use a number from 1 to 1000"),
        ({"kind": "exponential", "factor": "two"}, 'factor is "two"', "use a number from 1 to 1000"),
        ([], "it is of type array", "use an object"),
        ("exponential", "it is of type string", "use an object"),
        (None, "it is of type null", "use an object"),
    ],
)
def test_an_invalid_backoff_is_reported_setting_by_setting_with_the_fix(
    queue: Queue, policy: Any, problem: str, fix: str
) -> None:
    found = check(queue, policy)

    assert found.problem == problem
    assert found.hint.startswith(fix)


# channel_changed: The triggers of messages.channel: the allowed settings of one channel, and the notification of
# daemons about a change.


def write(queue: Queue, **columns: Any) -> None:
    row = {"topic": "mail", "channel": "acme", **columns}
    queue.conn.execute(
        sql.SQL("INSERT INTO messages.channel ({}) VALUES ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, row)), sql.SQL(", ").join(map(sql.Literal, row.values()))
        )
    )


@pytest.mark.parametrize(
    ("setting", "value", "error", "fix"),
    [
        ("concurrency", -1, "concurrency of channel acme of topic mail is -1", "use 1 or more, or 0 for no limit"),
        (
            "min_interval",
            "31 days",
            "min_interval of channel acme of topic mail is 31 days",
            "use an interval up to 30 days, or 0 for none",
        ),
        (
            "min_interval",
            "-1 s",
            "min_interval of channel acme of topic mail is -00:00:01",
            "use an interval up to 30 days, or 0 for none",
        ),
        ("channel", "", '"" is no name of a channel', "use 1 to 200 printable characters"),
        ("channel", "a\nb", '"a\nb" is no name of a channel', "use 1 to 200 printable characters"),
    ],
)
def test_a_bad_value_is_refused_with_channel_setting_value_and_fix(
    queue: Queue, setting: str, value: Any, error: str, fix: str
) -> None:
    with pytest.raises(errors.InvalidParameterValue) as caught:
        write(queue, **{setting: value})

    assert (caught.value.diag.message_primary, caught.value.diag.message_hint) == (error, fix)


def test_the_defaults_have_no_channels(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="no name of a topic that has channels"):
        write(queue, topic="*", concurrency=1)


def test_each_change_notifies_the_daemons(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("topic_changed")

    write(queue, concurrency=1)
    queue.conn.execute("UPDATE messages.channel SET concurrency = 2")
    queue.conn.execute("DELETE FROM messages.channel")

    assert listener.received() == ["", "", ""]


# topic_changed: The triggers of messages.topic: check a policy, notify the daemons, and record which topics a publish
# must check.


def test_an_invalid_backoff_is_refused_with_topic_setting_and_fix(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue) as caught:
        queue.policy("mail", backoff={"kind": "exponential", "base": "soon"})

    assert caught.value.diag.message_primary == 'backoff of topic mail: base is "soon"'
    assert caught.value.diag.message_hint == 'use an interval from 0 to 3650 days, like "1s" or "10 minutes"'


@pytest.mark.parametrize(
    "statement", ["DELETE FROM messages.topic", "UPDATE messages.topic SET topic = 'renamed' WHERE topic = '*'"]
)
def test_the_row_of_the_defaults_cannot_be_deleted(queue: Queue, statement: str) -> None:
    with pytest.raises(psycopg.DatabaseError, match=r"'\*'"):
        queue.conn.execute(statement.encode())

    assert queue.value("SELECT count(*) FROM messages.topic WHERE topic = '*'") == 1


def test_the_row_of_a_topic_can_be_deleted(queue: Queue) -> None:
    queue.policy("mail", max_attempts=3)

    queue.conn.execute("DELETE FROM messages.topic WHERE topic = 'mail'")

    assert queue.value("SELECT count(*) FROM messages.topic WHERE topic = 'mail'") == 0


def test_a_change_sets_its_time(queue: Queue) -> None:
    queue.policy("mail", max_attempts=3)
    before = queue.value("SELECT updated_at FROM messages.topic WHERE topic = 'mail'")

    queue.policy("mail", max_attempts=4)

    assert queue.value("SELECT updated_at FROM messages.topic WHERE topic = 'mail'") > before


def test_topic_changed_each_change_notifies_the_daemons(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("topic_changed")

    queue.conn.execute("INSERT INTO messages.topic (topic) VALUES ('a'), ('b')")
    queue.conn.execute("UPDATE messages.topic SET max_attempts = 2 WHERE topic = 'a'")
    queue.conn.execute("DELETE FROM messages.topic WHERE topic = 'b'")

    assert listener.received() == ["", "", ""]


def test_two_concurrent_changes_both_apply_in_the_end(queue: Queue, other: Queue, background: Background) -> None:
    queue.policy("a", notify="auto")
    queue.policy("b", notify="auto")

    with queue.conn.transaction():
        queue.policy("a", notify="always")
        at_once = background.start_blocked(other, other.policy, "b", notify="always")
    at_once.result(timeout=60)

    bits = queue.call("policy_topic_bit", "a") | queue.call("policy_topic_bit", "b")
    assert queue.value("SELECT pg_sequence_last_value('messages.always_topic_bits')") & bits == bits


# messages.lock_policies: a session that reads the policies and then writes the differences is alone with them.


def test_no_policy_is_changed_while_it_is_held(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '10ms'")
    with queue.conn.transaction():
        queue.call("lock_policies")

        with pytest.raises(errors.LockNotAvailable):
            other.policy(ttl="1 s")
        queue.policy(ttl="2 s")

    other.policy(ttl="1 s")


def test_an_operator_may_call_it_and_a_worker_may_not(queue: Queue) -> None:
    with queue.conn.transaction(force_rollback=True):
        queue.conn.execute("SET LOCAL ROLE messages_operator")
        queue.call("lock_policies")
    with queue.conn.transaction(force_rollback=True):
        queue.conn.execute("SET LOCAL ROLE messages_worker")
        with pytest.raises(errors.InsufficientPrivilege):
            queue.call("lock_policies")
