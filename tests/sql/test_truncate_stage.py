"""messages.truncate_stage: truncates a large stage that no session uses."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue
from tests.sql.staging import stage, staged

FILL = """
    INSERT INTO messages.publish_stage (attempt, topic, payload)
    SELECT %s, 't', to_jsonb(repeat('x', 1000)) FROM generate_series(1, 9000)
"""


@pytest.fixture
def large(queue: Queue) -> Queue:
    """A queue with more staged rows than are worth a DELETE, left over by an earlier job."""
    queue.conn.execute(FILL, [stage(queue)])
    queue.conn.execute("DELETE FROM messages.publish_attempt")
    return queue


def test_it_is_truncated_when_no_session_stages(large: Queue) -> None:
    assert large.call("truncate_stage") is True
    assert large.value("SELECT pg_relation_size('messages.publish_stage')") == 0


def test_it_is_left_alone_while_a_session_stages(large: Queue) -> None:
    stage(large, {})

    assert large.call("truncate_stage") is False
    assert staged(large) == 9001


def test_it_is_left_alone_while_a_session_reads_it(large: Queue, other: Queue) -> None:
    with other.conn.transaction():
        staged(other)

        assert large.call("truncate_stage") is False
    assert large.call("truncate_stage") is True


def test_it_is_left_alone_with_a_snapshot_that_may_be_old(large: Queue) -> None:
    with large.conn.transaction():
        large.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

        assert large.call("truncate_stage") is False


def test_a_small_stage_is_left_alone(queue: Queue) -> None:
    large = queue.value("SELECT pg_relation_size('messages.publish_stage') >= 8388608")
    if large:
        queue.call("truncate_stage")

    assert queue.call("truncate_stage") is False
