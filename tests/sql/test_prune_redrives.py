"""messages.prune_redrives: the log of redrives is kept as long as it prevents a second redrive."""

from __future__ import annotations

from tests.sql.deaths import copy_of, die, outcomes
from tests.sql.exports import export
from tests.sql.queue import Queue


def logged(queue: Queue) -> list[int]:
    return [row.archived_id for row in queue.rows("SELECT archived_id FROM messages.redrive_log")]


def letters(queue: Queue) -> list[int]:
    return [row.origin_id for row in queue.rows("SELECT origin_id FROM messages.dead_letter")]


def test_a_redrive_is_deleted_only_when_its_day_must_have_left_the_archive(queue: Queue) -> None:
    died = die(queue)
    outcomes(queue, "redrive", [died])
    queue.conn.execute("DELETE FROM messages.message_archive")

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


def test_while_a_copy_is_live_its_original_and_redrive_are_kept(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = die(queue)
    (working,) = queue.claim("t.dlq")
    outcomes(queue, "redrive", [died])
    queue.settle("release", [working])
    queue.conn.execute("DELETE FROM messages.message_archive")

    queue.later("100 days")
    queue.call("prune_redrives")

    assert (logged(queue), letters(queue)) == ([died], [died])
    assert outcomes(queue, "requeue_dead_letters", [copy_of(queue, died).id]) == {working.id: "redriven_before"}


def test_a_dead_letter_whose_copy_ended_is_deleted_in_time(queue: Queue) -> None:
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
    queue.conn.execute("DELETE FROM messages.message_archive")
    queue.later("100 days")

    assert queue.call("prune_redrives", 3) == 3


def test_a_message_that_an_export_keeps_in_the_archive_is_never_redriven_twice(queue: Queue) -> None:
    died = die(queue)
    export(queue)
    outcomes(queue, "redrive", [died])
    queue.settle("complete", queue.claim())

    queue.later("100 days")
    queue.rows("SELECT * FROM messages.tick()")

    assert queue.archived(died).result == "failed"
    assert outcomes(queue, "redrive", [died]) == {died: "redriven_before"}


def test_rows_that_must_stay_hide_no_others(queue: Queue) -> None:
    kept = [die(queue) for _ in range(3)]
    gone = [die(queue) for _ in range(20)]
    outcomes(queue, "redrive", kept)
    outcomes(queue, "redrive", gone)
    queue.conn.execute("DELETE FROM messages.message_archive WHERE id = ANY (%s)", [gone])

    queue.later("100 days")
    for _ in range(200):
        queue.call("prune_redrives", 2)

    assert set(kept) <= set(logged(queue))
    assert len(set(logged(queue)) & set(gone)) < len(gone) / 2


def test_its_cost_depends_on_the_batch(queue: Queue) -> None:
    """However many rows are still in the archive."""
    queue.conn.execute(
        """
        INSERT INTO messages.message_archive (id, topic, priority, created_at, available_at, attempts, result)
        SELECT n, 't', 5, now(), now(), 1, 'failed' FROM generate_series(1, 20000) AS n;
        INSERT INTO messages.redrive_log (archived_id, message_id, redriven_at)
        SELECT n, -n, now() - interval '90 days' + n * interval '1 s' FROM generate_series(1, 20000) AS n
        """
    )

    # A few pages for each checked row, in each day of the archive: no more with ten times as many.
    days = queue.value("SELECT count(*) FROM pg_inherits WHERE inhparent = 'messages.message_archive'::regclass")
    with queue.conn.transaction(force_rollback=True):
        for setting in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin"):
            queue.conn.execute(f"SET LOCAL {setting} = off")
        assert queue.buffers("SELECT messages.prune_redrives(10)") < 20 * 4 * days + 200
