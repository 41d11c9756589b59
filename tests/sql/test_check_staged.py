"""messages.check_staged: nothing is published unless all that was staged is there, and the caller's own."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from tests.sql.queue import Queue
from tests.sql.staging import give_to_somebody_else, publish, stage, staged


def lost(queue: Queue) -> pytest.RaisesExc[psycopg.Error]:
    return pytest.raises(
        psycopg.Error, match="are missing: nothing was published", check=lambda e: e.sqlstate == "PGR06"
    )


def test_a_job_whose_stage_a_crash_has_emptied_is_told_so_and_can_be_staged_again(queue: Queue) -> None:
    attempt = stage(queue, {}, {})
    # What the recovery after a crash does to unlogged tables.
    queue.conn.execute("TRUNCATE messages.publish_stage, messages.publish_attempt")

    with lost(queue):
        publish(queue, attempt, counts=[2])

    assert publish(queue, stage(queue, {}, {})).published == 2


def test_a_single_row_that_is_missing_is_noticed(queue: Queue) -> None:
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


def test_what_was_staged_for_another_job_is_missing_from_this_one(queue: Queue) -> None:
    attempt = stage(queue, {}, job="other")

    with lost(queue):
        publish(queue, attempt, counts=[1])


def test_an_attempt_that_staged_nothing_must_be_there_too(queue: Queue) -> None:
    attempt = stage(queue)
    queue.conn.execute("DELETE FROM messages.publish_attempt")

    with lost(queue):
        publish(queue, attempt, counts=[0])


def test_what_another_user_staged_is_refused(queue: Queue) -> None:
    attempt = stage(queue, {})
    give_to_somebody_else(queue)

    with pytest.raises(errors.InsufficientPrivilege, match="is another user's"):
        publish(queue, attempt, counts=[1])
    assert staged(queue) == 1
