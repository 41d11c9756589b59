"""messages.job_result: what became of a job."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.queue import Queue
from tests.sql.staging import give_to_somebody_else, publish_rows

RESULT = "SELECT published, ignored, dropped, rejected FROM messages.job_result('j')"


def test_it_tells_what_publish_staged_told(queue: Queue) -> None:
    publish_rows(queue, {}, {}, {"reason": "bad", "given": "{}"})

    assert queue.rows(RESULT) == [(2, 0, 0, 1)]


def test_a_job_that_was_not_published_has_none(queue: Queue) -> None:
    assert queue.rows(RESULT) == []


def test_a_job_of_another_user_is_refused(queue: Queue) -> None:
    publish_rows(queue, {})
    give_to_somebody_else(queue)

    with pytest.raises(errors.InsufficientPrivilege):
        queue.rows(RESULT)
