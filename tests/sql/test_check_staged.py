"""messages.check_staged: a publish requires that all staged rows exist and belong to the caller."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from tests.sql.queue import Queue
from tests.sql.staging import give_to_another_user, publish, stage, staged


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
