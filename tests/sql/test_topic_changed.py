"""The triggers of messages.topic: check a policy, notify the daemons, and record which topics a publish must check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.sql.queue import Background, Listener, Queue


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


def test_each_change_notifies_the_daemons(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("topic_changed")

    queue.conn.execute("INSERT INTO messages.topic (topic) VALUES ('a'), ('b')")
    queue.conn.execute("UPDATE messages.topic SET max_attempts = 2 WHERE topic = 'a'")
    queue.conn.execute("DELETE FROM messages.topic WHERE topic = 'b'")

    assert listener.received() == ["", "", ""]


def test_two_concurrent_changes_both_apply_in_the_end(
    queue: Queue, other: Queue, background: Background, eventually: Any
) -> None:
    queue.policy("a", notify="auto")
    queue.policy("b", notify="auto")

    with queue.conn.transaction():
        queue.policy("a", notify="always")
        at_once = background.start(other.policy, "b", notify="always")
        eventually(lambda: background.is_blocked(other))
    at_once.result(timeout=60)

    bits = queue.call("policy_topic_bit", "a") | queue.call("policy_topic_bit", "b")
    assert queue.value("SELECT pg_sequence_last_value('messages.always_topic_bits')") & bits == bits
