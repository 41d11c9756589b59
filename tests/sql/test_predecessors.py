"""messages.predecessors: the holder of a message gets the results and outputs of the messages after which it was published."""

from __future__ import annotations

from tests.sql.queue import Queue, Row


def before(queue: Queue, claimed: Row, claim_id: int | None = None) -> list[tuple[object, ...]]:
    rows = queue.rows("SELECT * FROM messages.predecessors(%s, %s)", [claimed.id, claim_id or claimed.claim_id])
    return [tuple(row) for row in rows]


def test_the_holder_gets_results_and_outputs_in_the_order_of_the_publisher(queue: Queue) -> None:
    one, two = queue.publish_many(2, "first")
    for output in ("1", '"two"'):
        queue.settle("complete", [queue.claim_one("first")], [output])
    queue.send(after=[two, one])

    claimed = queue.claim_one()

    assert before(queue, claimed) == [
        (two, None, "first", "success", '"two"', None),
        (one, None, "first", "success", "1", None),
    ]


def test_a_message_after_none_has_a_row_for_its_holder_and_none_for_others(queue: Queue) -> None:
    queue.publish()
    claimed = queue.claim_one()

    assert before(queue, claimed) == [(None,) * 6]
    assert before(queue, claimed, claimed.claim_id + 1) == []


def test_with_a_claim_of_another_message_nothing_is_read(queue: Queue) -> None:
    one = queue.publish("first")
    queue.settle("complete", queue.claim("first"), ["1"])
    queue.send(after=[one])
    queue.publish("other")
    successor, other = queue.claim_one(), queue.claim_one("other")

    assert before(queue, successor, other.claim_id) == []


def test_with_strict_lock_an_expired_lock_is_lost(queue: Queue) -> None:
    queue.policy(lock_duration="1 s", strict_lock=True)
    queue.publish()
    claimed = queue.claim_one()

    queue.later("2 s")

    assert before(queue, claimed) == []


def test_a_bad_end_that_counts_as_done_has_its_error(queue: Queue) -> None:
    one = queue.publish("first")
    queue.send(after=[one], after_failed="run")
    queue.settle("fail", queue.claim("first"), ["boom"])

    assert before(queue, queue.claim_one()) == [(one, None, "first", "failed", None, "boom")]


def test_a_redriven_message_has_the_result_of_what_it_became(queue: Queue) -> None:
    one = queue.publish("first")
    queue.send(after=[one])
    queue.settle("fail", queue.claim("first"), ["boom"])
    again = queue.row("SELECT * FROM messages.redrive_edited(%s, '2')", [one]).message_id
    queue.settle("complete", queue.claim("first"), ["2"])

    assert before(queue, queue.claim_one()) == [(one, again, "first", "success", "2", None)]


def test_the_end_that_counted_as_done_is_shown_while_its_redrive_runs(queue: Queue) -> None:
    one = queue.publish("first")
    queue.send(after=[one], after_failed="run")
    queue.settle("fail", queue.claim("first"), ["boom"])
    queue.row("SELECT * FROM messages.redrive_edited(%s, '2')", [one])

    assert before(queue, queue.claim_one()) == [(one, None, "first", "failed", None, "boom")]


def test_of_what_is_not_kept_or_not_ended_nothing_is_known(queue: Queue) -> None:
    queue.policy("none", archive_success="none")
    gone, purged, lives = queue.publish("none"), queue.publish("first"), queue.publish("lives")
    last = queue.send(after=[gone, purged, lives]).id
    queue.settle("complete", queue.claim("none"))
    queue.settle("complete", queue.claim("first"), ["1"])
    queue.conn.execute("DELETE FROM messages.message_archive WHERE id = %s", [purged])

    queue.value("SELECT messages.unblock(%s)", [[last]])

    assert before(queue, queue.claim_one()) == [(each, *(None,) * 5) for each in (gone, purged, lives)]


def test_a_retry_and_a_redrive_of_the_successor_keep_its_predecessors(queue: Queue) -> None:
    queue.policy(max_attempts=2)
    one = queue.publish("first")
    queue.settle("complete", queue.claim("first"), ["1"])
    queue.send(after=[one])
    queue.settle("retry", queue.claim(), ["boom"], ["0 s"])
    in_retry = before(queue, queue.claim_one())

    queue.conn.execute(
        "UPDATE messages.message SET claim_id = NULL, locked_by = NULL, locked_at = NULL, lock_expires_at = NULL"
    )
    queue.settle("fail", queue.claim(), ["boom"])
    dead = queue.value("SELECT max(id) FROM messages.message_archive")
    queue.row("SELECT * FROM messages.redrive_edited(%s, '2')", [dead])

    assert before(queue, queue.claim_one()) == in_retry == [(one, None, "first", "success", "1", None)]


def test_the_list_is_deleted_when_the_message_succeeds(queue: Queue) -> None:
    one = queue.publish("first")
    queue.send(after=[one])
    queue.settle("complete", queue.claim("first"))

    queue.settle("complete", queue.claim())

    assert queue.value("SELECT count(*) FROM messages.predecessor_list") == 0


def test_a_thousand_predecessors_are_read_by_indexes(queue: Queue) -> None:
    many = queue.publish_many(1000, "first")
    queue.settle("complete", queue.claim("first", limit=1000), ["1"] * 1000)
    queue.send(after=many)

    assert [row[0] for row in before(queue, queue.claim_one())] == many
