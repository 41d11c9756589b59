"""messages.resolve_blocked: by its dependencies a message stays blocked, is released, or is cancelled. How that happens: test_chains.py."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_a_message_with_a_dependency_stays_blocked(queue: Queue) -> None:
    last = queue.send(after=[queue.publish()]).id

    queue.call("resolve_blocked", [last])

    assert queue.message(last).available_at.year == 9000


def test_a_message_without_one_is_released_in_its_position(queue: Queue) -> None:
    last = queue.send(after=[queue.publish("first")]).id
    queue.conn.execute("DELETE FROM messages.dependency")

    queue.call("resolve_blocked", [last])

    assert [c.id for c in queue.claim()] == [last]
    assert queue.value("SELECT count(*) FROM messages.blocked_message") == 0


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
