"""messages.read_own_job: a job, if it is the caller's."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.queue import Queue
from tests.sql.staging import give_to_another_user, publish_rows


@pytest.mark.parametrize("job", [None, "", "a\nb", "x" * 201])
def test_an_invalid_name_of_a_job_is_refused(queue: Queue, job: str | None) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="job is "):
        queue.call("read_own_job", job)


def test_it_returns_who_published_a_job(queue: Queue) -> None:
    publish_rows(queue, {})

    assert queue.row("SELECT * FROM messages.read_own_job('j')").published_by == "postgres"
    assert queue.row("SELECT * FROM messages.read_own_job('other')").job is None
    give_to_another_user(queue)
    with pytest.raises(errors.InsufficientPrivilege):
        queue.call("read_own_job", "j")
