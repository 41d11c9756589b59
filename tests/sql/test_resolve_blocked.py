"""messages.resolve_blocked: by its edges a message goes on waiting, is released, or is cancelled. How they come to that: test_chains.py."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_one_with_an_edge_goes_on_waiting(queue: Queue) -> None:
    last = queue.send(after=[queue.publish()]).id

    queue.call("resolve_blocked", [last])

    assert queue.message(last).available_at.year == 9000


def test_one_without_is_released_in_its_place(queue: Queue) -> None:
    last = queue.send(after=[queue.publish("first")]).id
    queue.conn.execute("DELETE FROM messages.dependency")

    queue.call("resolve_blocked", [last])

    assert [c.id for c in queue.claim()] == [last]
    assert queue.value("SELECT count(*) FROM messages.blocked_message") == 0


def test_one_that_is_not_live_any_more_is_forgotten(queue: Queue) -> None:
    last = queue.send(after=[queue.publish()]).id
    queue.conn.execute("DELETE FROM messages.message WHERE id = %s", [last])

    queue.call("resolve_blocked", [last])

    assert queue.value("SELECT count(*) FROM messages.blocked_message") == 0
    assert queue.value("SELECT count(*) FROM messages.dependency") == 0


def test_a_thousand_years_of_delay_end_with_the_domain(queue: Queue) -> None:
    first = queue.publish("first")
    queue.send(after=[first], delay="36500 days", ttl="36500 days", available_at=None)
    queue.stop_clock("8990-01-01 00:00+00")
    queue.conn.execute("DELETE FROM messages.dependency")

    queue.value("SELECT messages.resolve_blocked(ARRAY(SELECT id FROM messages.blocked_message))")

    assert queue.value("SELECT count(*) FROM messages.blocked_message") == 0


def test_a_cancellation_that_cannot_be_now_is_the_next_ticks_and_stops_no_release(queue: Queue, other: Queue) -> None:
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
