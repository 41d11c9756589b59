"""messages.prune_jobs: deletes old jobs and staged rows."""

from __future__ import annotations

from tests.sql.queue import Queue
from tests.sql.staging import publish_rows, rejected, stage, staged

BAD = {"reason": "bad", "given": "{}"}


def jobs(queue: Queue) -> list[str]:
    return [row.job for row in queue.rows("SELECT job FROM messages.publish_job ORDER BY job")]


def test_a_job_is_kept_for_thirty_days(queue: Queue) -> None:
    publish_rows(queue, {}, BAD, job="a")
    publish_rows(queue, {}, job="b")

    queue.later("29 days")
    assert (queue.call("prune_jobs"), jobs(queue)) == (0, ["a", "b"])
    queue.later("1 day 1 hour")
    assert queue.call("prune_jobs") > 0
    assert (jobs(queue), rejected(queue, "a")) == ([], [])


def test_a_job_is_kept_for_as_long_as_the_archive(queue: Queue) -> None:
    queue.policy("*", retention="90 days")
    publish_rows(queue, {})

    queue.later("89 days")
    queue.call("prune_jobs")
    assert jobs(queue) == ["j"]


def test_rejected_rows_are_deleted_in_bounded_numbers_and_their_job_last(queue: Queue) -> None:
    publish_rows(queue, BAD, BAD, BAD)
    queue.later("31 days")

    assert queue.call("prune_jobs", 2) == 2
    assert (jobs(queue), len(rejected(queue))) == (["j"], 1)
    queue.call("prune_jobs", 2)
    assert jobs(queue) == []


def test_rows_that_were_staged_more_than_a_day_ago_are_deleted_in_bounded_numbers(queue: Queue) -> None:
    stage(queue, {}, {}, {})

    queue.later("23 hours")
    assert (queue.call("prune_jobs", 2), staged(queue)) == (0, 3)
    queue.later("2 hours")
    assert (queue.call("prune_jobs", 2), staged(queue)) == (2, 1)
    assert (queue.call("prune_jobs", 2), staged(queue)) == (1, 0)
    assert queue.rows("SELECT FROM messages.publish_attempt") == []


def test_rows_whose_attempt_is_gone_are_deleted_while_others_stage(queue: Queue) -> None:
    gone = [stage(queue, {}, {"reason": "bad", "given": '{"n": 1}'}, job=f"j{n}") for n in range(3)]
    stage(queue, {})
    queue.conn.execute("DELETE FROM messages.publish_attempt WHERE attempt = ANY (%s)", [gone])

    assert (queue.call("prune_jobs", 4), staged(queue)) == (4, 3)
    assert (queue.call("prune_jobs", 4), staged(queue)) == (2, 1)


def test_one_call_deletes_many_old_attempts_and_jobs(queue: Queue) -> None:
    for n in range(5):
        publish_rows(queue, BAD, job=f"published {n}")
        stage(queue, {}, job=f"staged {n}")
    queue.later("31 days")

    queue.call("prune_jobs")

    assert (jobs(queue), staged(queue)) == ([], 0)
    assert queue.rows("SELECT FROM messages.publish_attempt") == []


def test_rows_that_are_being_published_are_skipped(queue: Queue, other: Queue) -> None:
    stage(queue, {})
    other.later("2 days")
    with queue.conn.transaction():
        queue.rows("SELECT FROM messages.publish_attempt FOR UPDATE")

        assert (other.call("prune_jobs"), staged(other)) == (0, 1)


def test_the_maintenance_calls_it(queue: Queue) -> None:
    stage(queue, {})
    queue.later("2 days")

    queue.call("prune")

    assert staged(queue) == 0
