"""messages.notify_waiters: sends notifications for messages that have waiters, and for no others. Its races: test_wait_for.py."""

from __future__ import annotations

from collections.abc import Callable

from tests.sql.queue import Listener, Queue


def wait(queue: Queue, *message_ids: int) -> None:
    queue.conn.execute("INSERT INTO messages.waiter SELECT unnest(%s::bigint[]), now()", [list(message_ids)])


def test_each_awaited_message_is_notified_once(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("settled")
    wait(queue, 1, 2, 3)

    notified = queue.call("notify_waiters", [2, 3, 4])
    again = queue.call("notify_waiters", [2, 3, 4])

    assert (notified, again) == (2, 0)
    assert sorted(listener.received()) == ["2", "3"]
    assert [row.message_id for row in queue.rows("SELECT message_id FROM messages.waiter")] == [1]


def test_nothing_is_sent_without_waiters(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("settled")

    assert queue.call("notify_waiters", [1, 2]) == 0
    assert listener.received() == []


def test_above_read_committed_all_messages_are_notified_and_no_waiter_is_changed(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    listener = listen("settled")
    wait(queue, 1)

    queue.conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    notified = queue.call("notify_waiters", [1, 2])
    queue.conn.execute("COMMIT")

    assert notified == 2
    assert sorted(listener.received()) == ["1", "2"]
    assert [row.message_id for row in queue.rows("SELECT message_id FROM messages.waiter")] == [1]
