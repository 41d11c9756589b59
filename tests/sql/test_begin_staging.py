"""messages.begin_staging: a task gets the number under which it stages rows."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.queue import Queue
from tests.sql.staging import give_to_another_user, publish_rows


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
