"""Messages that wait for others."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.sql.queue import Listener, Queue, Row

# messages.add_end_events: recorded ends are propagated at the commit, and are rolled back with their savepoint.


def test_a_later_event_of_a_message_replaces_the_earlier_one(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.call("add_end_events", [1], "failed")
        queue.call("add_end_events", [1], "redriven")
        assert queue.value("SELECT result FROM messages.end_event") == "redriven"


# messages.open_predecessors: which predecessors a message must wait for.


def predecessors(queue: Queue, *ids: int | None) -> list[Row]:
    return [tuple(row) for row in queue.rows("SELECT * FROM messages.open_predecessors(%s::bigint[])", [list(ids)])]


@pytest.mark.parametrize("message_id", [987654321, 0, -1, None])
def test_an_unknown_id_is_an_error_that_names_it(queue: Queue, message_id: int | None) -> None:
    with pytest.raises(psycopg.Error, match="never published") as caught:
        predecessors(queue, queue.publish(), message_id)

    assert caught.value.sqlstate == "PGR08"


def test_a_message_that_was_not_archived_is_an_error_that_names_it(queue: Queue) -> None:
    queue.policy(archive_success="none")
    published = queue.publish()
    queue.settle("complete", queue.claim())

    with pytest.raises(psycopg.Error, match=f"no message {published} .* neither live nor in the archive"):
        predecessors(queue, published)


def test_an_uncommitted_message_does_not_exist(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        published = other.publish()
        with pytest.raises(psycopg.Error, match="its publish is not committed"):
            predecessors(queue, published)


def test_more_than_a_hundred_thousand_are_refused(queue: Queue) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="after has 100001 messages"):
        predecessors(queue, *range(1, 100_002))


# messages.predecessors: the holder of a message gets the results and outputs of the messages after which it was
# published.


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


def test_a_message_is_of_the_workflow_of_the_oldest_that_it_comes_after(queue: Queue) -> None:
    one, other = queue.publish("first"), queue.publish("first")
    second = queue.send(after=[one]).id
    apart = queue.send(after=[other]).id
    queue.settle("complete", queue.claim("first"))
    queue.settle("complete", queue.claim())

    third = queue.send(after=[apart, second]).id

    found = queue.rows("SELECT message_id, workflow_id FROM messages.predecessor_list")
    assert dict(map(tuple, found)) == {second: one, apart: other, third: one}


def test_a_redriven_message_stays_in_its_workflow_and_so_does_what_comes_after_it(queue: Queue) -> None:
    one = queue.publish("first")
    second = queue.send(after=[one]).id
    queue.settle("complete", queue.claim("first"))
    queue.settle("fail", queue.claim(), ["boom"])

    (redriven,) = queue.rows("SELECT message_id FROM messages.redrive(%s)", [[second]])
    third = queue.send(after=[second]).id

    found = queue.rows("SELECT message_id, workflow_id FROM messages.predecessor_list")
    assert dict(map(tuple, found)) == {second: one, redriven.message_id: one, third: one}


# messages.unblock: an operator makes messages wait for no predecessor any more.


def test_they_are_ready_at_once_and_notified(queue: Queue, listen: Callable[..., Listener]) -> None:
    last = queue.send(after=[queue.publish("first")]).id
    queue.arm()
    listener = listen("new_message")

    released = queue.call("unblock", [last])

    assert (released, listener.received()) == ([last], ["t"])
    assert [c.id for c in queue.claim()] == [last]


def test_their_successors_wait_for_them_as_before(queue: Queue) -> None:
    second = queue.send(after=[queue.publish("first")]).id
    third = queue.send(after=[second]).id

    queue.call("unblock", [second])
    queue.settle("complete", queue.claim())

    assert [c.id for c in queue.claim()] == [third]


def test_a_message_without_predecessors_is_left_alone(queue: Queue) -> None:
    delayed, ended = queue.publish(wait="1 hour"), queue.publish("ended")
    queue.settle("complete", queue.claim("ended"))

    assert queue.call("unblock", [delayed, ended, 4711]) == []
    assert queue.claim() == []


def test_the_operator_is_recorded(queue: Queue) -> None:
    last = queue.send(after=[queue.publish("first")]).id

    queue.call("unblock", [last])

    recorded = queue.row("SELECT action, topic, target FROM messages.audit")
    assert tuple(recorded) == ("unblock", "t", str(last))


# messages.resolve_blocked: by its dependencies a message stays blocked, is released, or is cancelled. How that happens:
# test_chains.py.


def test_a_message_that_is_no_longer_live_is_deleted_from_the_blocked_ones(queue: Queue) -> None:
    last = queue.send(after=[queue.publish()]).id
    queue.conn.execute("DELETE FROM messages.message WHERE id = %s", [last])

    queue.call("resolve_blocked", [last])

    assert queue.value("SELECT count(*) FROM messages.blocked_message") == 0
    assert queue.value("SELECT count(*) FROM messages.dependency") == 0


def test_a_delay_of_a_thousand_years_is_clamped(queue: Queue) -> None:
    first = queue.publish("first")
    queue.send(after=[first], delay="36500 days", ttl="36500 days", available_at=None)
    queue.stop_clock("8990-01-01 00:00+00")
    queue.conn.execute("DELETE FROM messages.dependency")

    queue.value("SELECT messages.resolve_blocked(ARRAY(SELECT id FROM messages.blocked_message))")

    assert queue.value("SELECT count(*) FROM messages.blocked_message") == 0


def test_a_cancellation_that_must_wait_is_left_to_the_tick_and_delays_no_release(queue: Queue, other: Queue) -> None:
    before = queue.publish("first")
    cancelled = queue.send(after=[before], after_failed="cancel").id
    released = queue.send(after=[before]).id
    queue.conn.execute("UPDATE messages.blocked_message SET check_at = 'infinity'")
    queue.conn.execute("DELETE FROM messages.dependency WHERE successor_id = %s", [released])
    queue.conn.execute("UPDATE messages.dependency SET failed_result = 'failed'")
    queue.conn.execute("SET statement_timeout = '60s'; SET lock_timeout = '30s'")

    with other.conn.transaction():
        other.conn.execute("SELECT FROM messages.dependency WHERE successor_id = %s FOR UPDATE", [cancelled])
        queue.call("resolve_blocked", [cancelled, released])
    at_once = [c.id for c in queue.claim()]
    still = queue.message(cancelled)
    queue.call("propagate_missed_ends")

    assert (at_once, still.available_at.year) == ([released], 9000)
    assert queue.archived(cancelled).error == f"cancelled: message {before}, after which it comes, ended as failed"
    assert queue.value("SELECT count(*) FROM messages.blocked_message") == 0


# messages.workflow: the neighbours of a message, each with its state.


def neighbours(queue: Queue, message_id: int) -> list[tuple[object, ...]]:
    return [tuple(row) for row in queue.rows("SELECT * FROM messages.workflow(%s)", [message_id])]


def test_both_sides_are_shown_with_states_and_policies(queue: Queue) -> None:
    dead, running, waiting = queue.publish("dead"), queue.publish("running"), queue.publish("waiting", wait="1 hour")
    middle = queue.send(after=[dead, running, waiting]).id
    last = queue.send(topic="last", after=[middle], after_failed="run").id
    queue.settle("fail", queue.claim("dead"), ["boom"])
    queue.claim("running")

    assert neighbours(queue, middle) == [
        ("before", dead, "dead", "failed", "hold"),
        ("before", running, "running", "running", "hold"),
        ("before", waiting, "waiting", "delayed", "hold"),
        ("after", last, "last", "blocked", "run"),
    ]
    assert neighbours(queue, last) == [("before", middle, "t", "blocked", "run")]


def test_of_a_message_whose_row_is_gone_the_result_is_still_known(queue: Queue) -> None:
    first = queue.publish()
    last = queue.send(after=[first]).id
    queue.settle("reject", queue.claim(), ["no"])
    queue.conn.execute("DELETE FROM messages.message_archive")

    assert neighbours(queue, last) == [("before", first, None, "rejected", "hold")]


def test_a_message_without_neighbours_returns_none(queue: Queue) -> None:
    assert neighbours(queue, queue.publish()) == []
    assert neighbours(queue, 4711) == []


def test_at_most_a_hundred_are_returned_of_each_side(queue: Queue) -> None:
    firsts = queue.publish_many(150)
    last = queue.send(after=firsts).id

    assert len(neighbours(queue, last)) == 100
