"""Policies of a file are written: only named settings, with a preview, and once by concurrent sessions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from pgrouse.client.apply import policy_change
from pgrouse.config.policy.policy_settings import ChannelPolicy, TopicPolicy
from pgrouse.config.policy.topic_policy import DesiredPolicy
from tests.server.postgres import Database
from tests.sql.queue import Queue


def wanted(**settings: Any) -> DesiredPolicy:
    return DesiredPolicy(policy=TopicPolicy.model_validate(settings))


def changed(queue: Queue, topic: str, **settings: Any) -> list[str]:
    return [str(each) for each in policy_change.apply(queue.conn, {topic: wanted(**settings)})]


def row(queue: Queue, topic: str = "mail") -> Any:
    return queue.row("SELECT * FROM messages.topic WHERE topic = %s", [topic])


def test_named_settings_are_written_and_returned_as_old_and_new(queue: Queue) -> None:
    queue.policy("mail", max_attempts=2)

    output = changed(queue, "mail", max_attempts=5, lock_duration="2m")

    assert output == ["mail: max_attempts 2 -> 5", "mail: lock_duration inherit -> 2m"]
    assert (row(queue).max_attempts, row(queue).lock_duration.total_seconds()) == (5, 120)


def test_other_settings_are_not_changed(queue: Queue) -> None:
    queue.policy("mail", max_attempts=2, notify="off")
    queue.call("pause", "mail", "why")

    changed(queue, "mail", max_attempts=5)

    assert (row(queue).notify, row(queue).paused_reason) == ("off", "why")


def test_a_second_change_does_nothing(queue: Queue) -> None:
    everything = {
        "max_attempts": 5,
        "backoff": {"kind": "linear", "base": "90s", "jitter": "full"},
        "retention": "30d",
        "ttl": "none",
        "dequeue_rate": 2.5,
        "ordered": True,
        "payload_schema": {"type": "object"},
    }
    changed(queue, "mail", **everything)
    before = row(queue).updated_at

    assert changed(queue, "mail", **everything) == []
    assert row(queue).updated_at == before


def test_a_dry_run_returns_the_difference(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SET TRANSACTION READ ONLY")
        found = policy_change.differences(queue.conn, {"mail": wanted(max_attempts=5)})

    assert [str(each) for each in found] == ["mail: max_attempts inherit -> 5"]
    assert row(queue) is None


def test_true_differs_from_the_schema_one(queue: Queue) -> None:
    changed(queue, "mail", payload_schema={"type": "object"})

    assert changed(queue, "mail", payload_schema="none") == ['mail: payload_schema {"type": "object"} -> true']


def test_words_are_written_in_the_form_of_the_database(queue: Queue) -> None:
    queue.policy("mail", max_attempts=3)

    assert changed(queue, "mail", max_attempts="inherit") == ["mail: max_attempts 3 -> inherit"]
    assert changed(queue, "mail", max_attempts="none") == ["mail: max_attempts inherit -> none"]
    assert changed(queue, "*", max_attempts="none") == ["*: max_attempts 1 -> none"]
    assert row(queue, "*").max_attempts is None


def test_a_part_of_a_backoff_is_merged_into_the_current_value(queue: Queue) -> None:
    changed(queue, "mail", backoff={"base": "5s"})

    assert row(queue).backoff == {"kind": "exponential", "base": "5s", "factor": 2, "cap": "10m", "jitter": "full"}
    assert changed(queue, "mail", backoff={"base": "5s"}) == []


def test_a_part_of_a_backoff_is_merged_into_the_defaults_written_with_it(queue: Queue) -> None:
    both = {"mail": wanted(backoff={"base": "5s"}), "*": wanted(backoff={"kind": "constant", "base": "1s"})}

    policy_change.apply(queue.conn, both)

    assert row(queue).backoff == {"kind": "constant", "base": "5s"}


def test_a_kind_starts_a_new_backoff(queue: Queue) -> None:
    changed(queue, "mail", backoff={"kind": "constant", "base": "5s"})

    assert row(queue).backoff == {"kind": "constant", "base": "5s"}


def test_a_part_of_a_breaker_is_merged_into_the_current_value(queue: Queue) -> None:
    queue.policy("*", breaker={"failure_rate": 0.5, "window": "1m"})

    changed(queue, "mail", breaker={"window": "90s", "probes": 2})

    assert row(queue).breaker == {"failure_rate": 0.5, "window": "1m30s", "probes": 2}
    assert changed(queue, "mail", breaker={"window": "90s"}) == []


def test_the_same_duration_in_another_form_is_no_change(queue: Queue) -> None:
    queue.policy("mail", backoff={"kind": "constant", "base": "60s"})

    assert changed(queue, "mail", backoff={"kind": "constant", "base": "1m"}) == []


def test_channels_and_subscriptions_are_added_and_never_removed(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('a', 'mail')")
    queue.conn.execute("INSERT INTO messages.channel (topic, channel, min_interval) VALUES ('mail', 'acme', '1 s')")
    all_of_it = DesiredPolicy(channels={"acme": ChannelPolicy(concurrency=2)}, subscriptions=("b", "b"))

    found = [str(each) for each in policy_change.apply(queue.conn, {"mail": all_of_it})]

    assert found == ["mail, channel acme: concurrency inherit -> 2", "mail: + subscription to b"]
    assert policy_change.apply(queue.conn, {"mail": all_of_it}) == []
    assert queue.value("SELECT min_interval::text FROM messages.channel") == "00:00:01"
    assert [row.topic for row in queue.rows("SELECT topic FROM messages.subscription ORDER BY topic")] == ["a", "b"]


def test_a_reader_is_refused_only_if_there_is_a_change(queue: Queue) -> None:
    queue.policy("mail", max_attempts=5)
    queue.conn.execute("SET ROLE messages_worker")

    assert changed(queue, "mail", max_attempts=5) == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        changed(queue, "mail", max_attempts=6)


def test_a_refused_value_changes_nothing(queue: Queue) -> None:
    impossible = {"mail": wanted(max_attempts=5), "a b": wanted(max_attempts=5)}

    with pytest.raises(psycopg.errors.InvalidParameterValue, match='"a b" is no name of a topic'):
        policy_change.apply(queue.conn, impossible)

    assert row(queue) is None


def test_only_one_of_many_concurrent_changes_writes(database: Database) -> None:
    both = {"mail": wanted(max_attempts=5), "*": wanted(max_attempts=4)}
    connections = [database.connect() for _ in range(6)]

    with ThreadPoolExecutor(6) as threads:
        changes = list(threads.map(lambda conn: policy_change.apply(conn, both), connections))

    assert sorted(len(each) for each in changes) == [0, 0, 0, 0, 0, 2]


def test_a_long_value_is_cut(queue: Queue) -> None:
    (change,) = changed(queue, "mail", payload_schema={"enum": ["x" * 500]})

    assert len(change) < 200
    assert change.endswith("…")
