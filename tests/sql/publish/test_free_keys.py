"""messages.free_keys: what the end of a message does to the key that it holds."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

FREE = "SELECT messages.free_keys(ARRAY[(%s, 't', 'k')::messages.ended_message], %s)"


@pytest.fixture(autouse=True)
def held(queue: Queue) -> None:
    queue.policy("t", key_ttl="1 hour")
    queue.conn.execute("INSERT INTO messages.held_key VALUES ('t', 'k', 1)")


@pytest.mark.parametrize("result", ["rejected", "failed", "lock_expired", "expired", "cancelled"])
def test_any_other_result_frees_the_key(queue: Queue, result: str) -> None:
    queue.rows(FREE, [1, result])

    assert queue.rows("SELECT FROM messages.held_key") == []


def test_a_message_that_does_not_hold_the_key_frees_nothing(queue: Queue) -> None:
    queue.rows(FREE, [2, "failed"])

    assert queue.value("SELECT message_id FROM messages.held_key") == 1


def test_if_key_ttl_was_removed_in_the_meantime_a_success_frees_the_key_too(queue: Queue) -> None:
    queue.policy("t", key_ttl=None)

    queue.rows(FREE, [1, "success"])

    assert queue.rows("SELECT FROM messages.held_key") == []
