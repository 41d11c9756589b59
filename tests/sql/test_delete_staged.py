"""messages.delete_staged: staged rows that will not be published are deleted."""

from __future__ import annotations

from tests.sql.queue import Queue
from tests.sql.staging import give_to_another_user, stage, staged


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
