"""messages.prune_redrives: the log of redrives is kept as long as it guards anything."""

from __future__ import annotations

from tests.sql.deaths import copy_of, die, outcomes
from tests.sql.queue import Queue


def logged(queue: Queue) -> list[int]:
    return [row.archived_id for row in queue.rows("SELECT archived_id FROM messages.redrive_log")]


def letters(queue: Queue) -> list[int]:
    return [row.origin_id for row in queue.rows("SELECT origin_id FROM messages.dead_letter")]


def test_a_redrive_is_forgotten_only_when_its_day_must_have_left_the_archive(queue: Queue) -> None:
    died = die(queue)
    outcomes(queue, "redrive", [died])

    queue.later("31 days")
    assert (queue.call("prune_redrives"), logged(queue)) == (0, [died])
    queue.later("1 day 1 minute")
    assert (queue.call("prune_redrives"), logged(queue)) == (1, [])


def test_the_longest_retention_of_any_topic_decides(queue: Queue) -> None:
    queue.policy("kept", retention="100 days")
    died = die(queue)
    outcomes(queue, "redrive", [died])

    queue.later("90 days")

    assert queue.call("prune_redrives") == 0


def test_while_a_copy_is_live_it_is_known_whose_it_is_and_that_it_was_put_back(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = die(queue)
    (working,) = queue.claim("t.dlq")
    outcomes(queue, "redrive", [died])
    queue.settle("release", [working])
    queue.conn.execute("DELETE FROM messages.message_archive")

    queue.later("100 days")
    queue.call("prune_redrives")

    assert (logged(queue), letters(queue)) == ([died], [died])
    assert outcomes(queue, "requeue", [copy_of(queue, died).id]) == {working.id: "redriven_before"}


def test_a_dead_letter_whose_copy_ended_is_forgotten_in_time(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    ended = [die(queue) for _ in range(20)]
    queue.settle("complete", queue.claim("t.dlq"))
    waiting = die(queue)

    queue.later("100 days")
    for _ in range(200):
        queue.call("prune_redrives")

    assert waiting in letters(queue)
    assert len(set(letters(queue)) & set(ended)) < len(ended) / 2


def test_a_call_is_bounded(queue: Queue) -> None:
    died = [die(queue) for _ in range(5)]
    outcomes(queue, "redrive", died)
    queue.later("100 days")

    assert queue.call("prune_redrives", 3) == 3
