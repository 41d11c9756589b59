"""messages.hold_keys: which keys a publish writes into held_key. The effects are in test_publish_with_key.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import errors

from tests.server.postgres import Database
from tests.sql.queue import Background, Queue

HOLD = "SELECT messages.hold_keys(%s, %s, %s, %s)"


def held(queue: Queue) -> list[tuple[str, str, int]]:
    return [(h.topic, h.key, h.message_id) for h in queue.rows("SELECT * FROM messages.held_key ORDER BY topic, key")]


def test_only_topics_with_key_ttl_hold_keys(queue: Queue) -> None:
    queue.policy("t", key_ttl="1 hour")

    queue.rows(HOLD, [[1, 2], ["t", "other"], ["k", "k"], [False, False]])

    assert held(queue) == [("t", "k", 1)]


def test_an_expired_key_is_replaced(queue: Queue) -> None:
    queue.policy("t", key_ttl="1 hour")
    queue.conn.execute("INSERT INTO messages.held_key VALUES ('t', 'k', 1, now() - interval '1 s')")

    queue.rows(HOLD, [[2], ["t"], ["k"], [False]])

    assert held(queue) == [("t", "k", 2)]
    assert queue.value("SELECT free_at FROM messages.held_key") is None


def test_a_redriven_message_takes_a_free_key_and_leaves_a_held_one(queue: Queue) -> None:
    queue.policy("t", key_ttl="1 hour")
    queue.conn.execute("INSERT INTO messages.held_key VALUES ('t', 'held', 1)")

    queue.rows(HOLD, [[2, 3], ["t", "t"], ["held", "free"], [True, True]])

    assert held(queue) == [("t", "free", 3), ("t", "held", 1)]


def test_the_default_of_all_topics_applies_and_0_lifts_it(queue: Queue) -> None:
    queue.policy("*", key_ttl="1 hour")
    queue.policy("t", key_ttl="0")

    queue.rows(HOLD, [[1, 2], ["t", "other"], ["k", "k"], [False, False]])

    assert held(queue) == [("other", "k", 2)]


def test_of_two_concurrent_publishes_of_a_key_the_second_is_refused(
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    queue.policy("t", key_ttl="1 hour")
    with other.conn.transaction():
        other.rows(HOLD, [[1], ["t"], ["k"], [False]])
        second = background.start(queue.rows, HOLD, [[2], ["t"], ["k"], [False]])
        eventually(lambda: background.is_blocked(queue))

    with pytest.raises(errors.UniqueViolation, match="held by message 1 until it has ended"):
        second.result(timeout=60)


# As if a second passed before each look at the holder.
SLOW_LOOK = """
    ALTER FUNCTION messages.key_holder RENAME TO found_holder;
    CREATE FUNCTION messages.key_holder(p_topic text, p_key text) RETURNS messages.held_key
    BEGIN ATOMIC
      SELECT set_config('messages.fake_now', (messages.now() + interval '1 s')::text, false);
      SELECT messages.found_holder(p_topic, p_key);
    END
"""


def test_a_key_that_becomes_free_between_two_looks_at_its_holder_is_taken(
    own_queue: Queue, own_database: Database, background: Background, eventually: Callable[..., Any]
) -> None:
    own_queue.policy("t", key_ttl="1 hour")
    own_queue.conn.execute(SLOW_LOOK)
    own_queue.stop_clock("2026-01-01 12:00:00+00")
    first = Queue(own_database.connect())
    with first.conn.transaction():
        first.conn.execute("INSERT INTO messages.held_key VALUES ('t', 'k', 1, '2026-01-01 12:00:01.5+00')")
        second = background.start(own_queue.rows, HOLD, [[2], ["t"], ["k"], [False]])
        eventually(lambda: background.is_blocked(own_queue))

    second.result(timeout=60)

    assert held(own_queue) == [("t", "k", 2)]
