"""The stage of bulk publishing: who may stage what, and what is deleted."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors

from tests.sql.queue import Queue
from tests.sql.staging import give_to_another_user, publish, publish_rows, put, stage, staged

# messages.begin_staging: a task gets the number under which it stages rows.


def test_each_task_and_each_repetition_of_it_gets_its_own_number(queue: Queue) -> None:
    assert queue.call("begin_staging", "j") != queue.call("begin_staging", "j")


def test_a_published_job_gets_no_number(queue: Queue) -> None:
    publish_rows(queue, {})

    assert queue.call("begin_staging", "j") is None
    assert queue.call("begin_staging", "other") is not None


def test_a_job_of_another_user_is_refused(queue: Queue) -> None:
    publish_rows(queue, {})
    give_to_another_user(queue)

    with pytest.raises(errors.InsufficientPrivilege, match='job "j" was published by another user'):
        queue.call("begin_staging", "j")


# messages.check_attempts: rows are staged only under numbers that their publisher got, and what they say of themselves
# is bounded.


@pytest.mark.parametrize("row", [{}, {"reason": "bad", "given": "{}"}])
def test_rows_are_not_staged_under_a_number_that_was_never_given_out(queue: Queue, row: dict[str, Any]) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="not registered") as caught:
        put(queue, uuid4(), **row)

    assert "messages.begin_staging" in str(caught.value.diag.message_hint)
    assert staged(queue) == 0


def test_rows_are_not_staged_under_another_users_number(queue: Queue) -> None:
    attempt = stage(queue, {})
    give_to_another_user(queue)

    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="not registered"):
        put(queue, attempt)


def test_rows_of_several_own_numbers_are_staged_by_one_statement(queue: Queue) -> None:
    numbers = [stage(queue), stage(queue)]

    queue.conn.execute(
        "INSERT INTO messages.publish_stage (attempt, topic, payload) SELECT unnest(%s::uuid[]), 't', '1'", [numbers]
    )

    assert staged(queue) == 2


@pytest.mark.parametrize(
    "row",
    [
        {"reason": "x" * 1001, "given": "{}"},
        {"reason": "bad", "given": '"' + "x" * 16 * 1024 * 1024 + '"'},
        {"topic": "t", "payload": "1", "given": "{}"},
    ],
    ids=["a long reason", "much that was given", "given without a reason"],
)
def test_what_a_rejected_row_says_is_bounded(queue: Queue, row: dict[str, Any]) -> None:
    attempt = stage(queue)

    with pytest.raises(psycopg.errors.CheckViolation):
        put(queue, attempt, **row)


# messages.check_staged: a publish requires that all staged rows exist and belong to the caller.


def lost(queue: Queue) -> pytest.RaisesExc[psycopg.Error]:
    return pytest.raises(
        psycopg.Error, match="are missing: nothing was published", check=lambda e: e.sqlstate == "PGR06"
    )


def test_a_job_whose_staged_rows_a_crash_removed_is_refused_and_can_be_staged_again(queue: Queue) -> None:
    attempt = stage(queue, {}, {})
    # The recovery after a crash truncates unlogged tables.
    queue.conn.execute("TRUNCATE messages.publish_stage, messages.publish_attempt")

    with lost(queue):
        publish(queue, attempt, counts=[2])

    assert publish(queue, stage(queue, {}, {})).published == 2


def test_a_single_missing_row_is_noticed(queue: Queue) -> None:
    attempt = stage(queue, {}, {})
    queue.conn.execute(
        "DELETE FROM messages.publish_stage WHERE ctid IN (SELECT ctid FROM messages.publish_stage LIMIT 1)"
    )

    with lost(queue):
        publish(queue, attempt, counts=[2])
    assert queue.ids() == []


def test_a_row_too_many_is_noticed(queue: Queue) -> None:
    attempt = stage(queue, {}, {})

    with lost(queue):
        publish(queue, attempt, counts=[1])


def test_rows_that_were_staged_for_another_job_are_missing(queue: Queue) -> None:
    attempt = stage(queue, {}, job="other")

    with lost(queue):
        publish(queue, attempt, counts=[1])


def test_an_attempt_that_staged_no_rows_must_exist_too(queue: Queue) -> None:
    attempt = stage(queue)
    queue.conn.execute("DELETE FROM messages.publish_attempt")

    with lost(queue):
        publish(queue, attempt, counts=[0])


def test_rows_that_another_user_staged_are_refused(queue: Queue) -> None:
    attempt = stage(queue, {})
    give_to_another_user(queue)

    with pytest.raises(errors.InsufficientPrivilege, match="is another user's"):
        publish(queue, attempt, counts=[1])
    assert staged(queue) == 1


# messages.delete_staged: staged rows that will not be published are deleted.


def test_the_staged_rows_of_the_caller_are_deleted_and_no_others(queue: Queue) -> None:
    mine, other = stage(queue, {}, {}), stage(queue, {})

    assert queue.call("delete_staged", [mine]) == 1
    assert staged(queue) == 1
    assert queue.rows("SELECT attempt FROM messages.publish_attempt") == [(other,)]


def test_rows_that_another_user_staged_stay(queue: Queue) -> None:
    attempt = stage(queue, {})
    give_to_another_user(queue)

    assert queue.call("delete_staged", [attempt]) == 0
    assert staged(queue) == 1


def test_it_may_be_called_twice(queue: Queue) -> None:
    attempt = stage(queue, {})

    assert [queue.call("delete_staged", [attempt]) for _ in range(2)] == [1, 0]


# messages.staged_end: when a staged row expires.

TIMES: dict[str, Any] = {"available_at": None, "delay": None, "ttl": None, "expires_at": None}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"expires_at": "2031-01-01 00:00+00"}, "2031-01-01"),
        ({"ttl": "1 day"}, "2030-01-02"),
        ({"ttl": "1 day", "delay": "1 day"}, "2030-01-03"),
        ({"ttl": "1 day", "available_at": "2029-01-01 00:00+00"}, "2030-01-02"),
        ({"ttl": "36500 days", "available_at": "8999-01-01 00:00+00"}, "9000-01-01"),
    ],
    ids=str,
)
def test_a_ttl_counts_from_when_the_row_becomes_available(
    queue: Queue, given: dict[str, str], expected: str | None
) -> None:
    end = "messages.staged_end(%(available_at)s, %(delay)s, %(ttl)s, %(expires_at)s, '2030-01-01 00:00+00')"

    found = queue.value(f"SELECT ({end} AT TIME ZONE 'UTC')::date::text", TIMES | given)

    assert found == expected


# messages.truncate_stage: truncates a large stage that no session uses.

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
