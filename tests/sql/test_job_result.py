"""messages.job_result: the result of a bulk publish."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.queue import Queue
from tests.sql.staging import give_to_another_user, publish_rows

RESULT = "SELECT published, ignored, dropped, rejected FROM messages.job_result('j')"


def test_it_returns_the_same_row_as_publish_staged(queue: Queue) -> None:
    publish_rows(queue, {}, {}, {"reason": "bad", "given": "{}"})

    assert queue.rows(RESULT) == [(2, 0, 0, 1)]


def test_an_unpublished_job_has_no_result(queue: Queue) -> None:
    assert queue.rows(RESULT) == []


def test_a_job_of_another_user_is_refused(queue: Queue) -> None:
    publish_rows(queue, {})
    give_to_another_user(queue)

    with pytest.raises(errors.InsufficientPrivilege):
        queue.rows(RESULT)
