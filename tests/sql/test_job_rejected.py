"""messages.job_rejected: the rows of a job that were not published, page by page."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.queue import Queue
from tests.sql.staging import give_to_another_user, publish_rows

BAD = {"reason": "bad", "given": "{}"}


def test_it_returns_them_page_by_page(queue: Queue) -> None:
    publish_rows(queue, BAD, BAD, BAD, job="j")
    publish_rows(queue, BAD, job="other")

    first = queue.rows("SELECT nth FROM messages.job_rejected('j', p_limit => 2)")
    second = queue.rows("SELECT nth FROM messages.job_rejected('j', p_after => 2)")

    assert (first, second) == ([(1,), (2,)], [(3,)])


def test_the_rows_of_another_users_job_are_refused(queue: Queue) -> None:
    publish_rows(queue, BAD)
    give_to_another_user(queue)

    with pytest.raises(errors.InsufficientPrivilege):
        queue.rows("SELECT * FROM messages.job_rejected('j')")
