"""messages.delete_staged: what will not be published goes."""

from __future__ import annotations

from tests.sql.queue import Queue
from tests.sql.staging import give_to_somebody_else, stage, staged


def test_what_the_caller_staged_is_gone_and_nothing_else(queue: Queue) -> None:
    mine, other = stage(queue, {}, {}), stage(queue, {})

    assert queue.call("delete_staged", [mine]) == 1
    assert staged(queue) == 1
    assert queue.rows("SELECT attempt FROM messages.publish_attempt") == [(other,)]


def test_what_another_user_staged_stays(queue: Queue) -> None:
    attempt = stage(queue, {})
    give_to_somebody_else(queue)

    assert queue.call("delete_staged", [attempt]) == 0
    assert staged(queue) == 1


def test_it_may_be_called_twice(queue: Queue) -> None:
    attempt = stage(queue, {})

    assert [queue.call("delete_staged", [attempt]) for _ in range(2)] == [1, 0]
