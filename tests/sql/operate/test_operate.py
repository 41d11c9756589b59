"""Operations on waiting messages: cancel, delete, skip, retry now, erase."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sql.queue import Background, Listener, Queue

# messages.cancel: an operator ends waiting and running messages.


@pytest.mark.parametrize(
    ("wait", "reason", "error"),
    [("-1 s", None, "cancelled"), ("1 hour", "ordered twice", "cancelled: ordered twice")],
)
def test_a_waiting_message_is_archived_as_cancelled_with_the_reason(
    queue: Queue, wait: str, reason: str | None, error: str
) -> None:
    published = queue.publish(wait=wait)

    assert queue.call("cancel", [published], reason) == [published]

    archived = queue.archived(published)
    assert queue.message(published) is None
    assert (archived.result, archived.error, archived.handled_by) == ("cancelled", error, "postgres")


def test_the_worker_of_a_running_message_is_notified_at_once(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("cancelled")
    running, waiting = queue.publish(), queue.publish("u")
    queue.claim()

    queue.call("cancel", [running, waiting])

    assert listener.received() == [str(running)]


@pytest.mark.parametrize(
    ("settle", "arguments"),
    [("complete", ()), ("retry", (["x"],)), ("fail", (["x"],)), ("release", ()), ("defer", ()), ("heartbeat", ())],
)
def test_later_settles_of_the_worker_change_nothing_and_report_a_lost_lock(
    queue: Queue, settle: str, arguments: Any
) -> None:
    published = queue.publish(max_attempts=5)
    claimed = queue.claim()
    queue.call("cancel", [published])
    before = queue.archived(published)

    assert queue.settle(settle, claimed, *arguments) == [published]
    assert (queue.message(published), queue.archived(published)) == (None, before)


def test_an_ended_or_unknown_message_is_not_cancelled(queue: Queue) -> None:
    published = queue.publish()
    queue.settle("complete", queue.claim())

    assert [queue.call("cancel", ids) for ids in ([published], [4711], [], None)] == [[]] * 4
    assert queue.archived(published).result == "success"


def test_many_are_cancelled_at_once(queue: Queue) -> None:
    published = queue.publish_many(50)
    queue.claim(limit=20)

    assert sorted(queue.call("cancel", published)) == published
    assert queue.ids() == []


def test_a_cancel_waits_for_a_settle_in_progress_and_then_finds_nothing(
    queue: Queue, other: Queue, background: Background
) -> None:
    published = queue.publish()
    claimed = queue.claim()

    with queue.conn.transaction():
        queue.settle("complete", claimed)
        cancel = background.start_blocked(other, other.call, "cancel", [published])

    assert cancel.result(timeout=60) == []
    assert queue.archived(published).result == "success"


def test_a_message_that_is_claimed_at_the_same_time_is_cancelled_as_running(
    queue: Queue, other: Queue, background: Background, listen: Callable[..., Listener]
) -> None:
    listener = listen("cancelled")
    published = queue.publish()

    with queue.conn.transaction():
        claimed = queue.claim()
        cancel = background.start_blocked(other, other.call, "cancel", [published])

    assert cancel.result(timeout=60) == [published]
    assert listener.received() == [str(published)]
    assert queue.settle("complete", claimed) == [published]


# messages.delete: waiting messages are deleted without an archive row.


def test_a_waiting_message_is_deleted_without_an_archive_row(queue: Queue) -> None:
    first, second = queue.publish(), queue.publish(wait="1 hour")

    assert queue.call("delete", [first, second, 2**62]) == [first, second]

    assert queue.ids() == []
    assert queue.rows("SELECT FROM messages.message_archive") == []
    audit = queue.row("SELECT action, topic, detail FROM messages.audit ORDER BY id DESC LIMIT 1")
    assert (audit.action, audit.topic, audit.detail["ids"]) == ("delete", "t", [first, second])


def test_running_and_ended_messages_are_left_alone(queue: Queue) -> None:
    ended = queue.publish()
    queue.settle("complete", queue.claim())
    runs = queue.publish()
    queue.claim()

    assert queue.call("delete", [ended, runs]) == []

    assert queue.ids() == [runs]
    assert queue.archived(ended).result == "success"


def test_a_locked_row_is_not_waited_for(queue: Queue, other: Queue) -> None:
    held, free = queue.publish_many(2)
    with other.conn.transaction():
        other.conn.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [held])

        assert queue.call("delete", [held, free]) == [free]


def test_its_key_and_its_slot_in_a_full_topic_are_free_again(queue: Queue) -> None:
    queue.policy(max_depth=1)
    first = queue.publish(key="k")

    queue.call("delete", [first])

    assert queue.publish(key="k") > first


def test_its_end_is_propagated_to_successors(queue: Queue) -> None:
    first = queue.publish()
    second = queue.send(after=[first], after_failed="cancel").id

    queue.call("delete", [first])
    queue.call("propagate_missed_ends", 1000)

    assert queue.archived(second).result == "cancelled"


# messages.skip: ends a waiting message so that those behind it can run.


def test_a_skipped_message_is_dead_with_the_reason_and_can_be_redriven(queue: Queue) -> None:
    published = queue.publish()

    assert queue.call("skip", [published], "its order was deleted") == [published]

    assert (queue.archived(published).result, queue.archived(published).error) == (
        "failed",
        "skipped: its order was deleted",
    )
    assert queue.claim() == []


def test_the_channel_continues_after_a_skipped_first_message(queue: Queue) -> None:
    queue.policy(ordered=True, max_attempts=5, backoff={"kind": "constant", "base": "1 hour"})
    first, second = queue.publish_many(2, channel="c")
    queue.settle("retry", queue.claim(), ["boom"])
    assert queue.claim() == []

    queue.call("skip", [first])

    assert [c.id for c in queue.claim()] == [second]


def test_a_running_message_is_not_skipped(queue: Queue) -> None:
    published = queue.publish()
    queue.claim()

    assert queue.call("skip", [published]) == []
    assert queue.message(published) is not None


# messages.retry_now: makes delayed messages ready at once.


def test_a_delayed_message_can_be_claimed_at_once_and_wakes_a_sleeper(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    published = queue.publish(wait="1 hour")
    queue.arm()
    listener = listen("new_message")

    assert queue.call("retry_now", [published]) == [published]

    assert listener.received() == ["t"]
    assert queue.claim_one().id == published


def test_a_failed_message_need_not_wait_for_its_next_attempt(queue: Queue) -> None:
    queue.policy(max_attempts=5)
    published = queue.publish()
    queue.settle("retry", queue.claim(), ["boom"], ["1 hour"])
    assert queue.claim() == []

    queue.call("retry_now", [published])

    assert queue.claim_one().attempt == 2


def test_the_first_message_of_an_ordered_channel_keeps_its_position_and_the_channel_continues(queue: Queue) -> None:
    queue.policy(max_attempts=5, ordered=True)
    first, second = queue.publish(channel="c"), queue.publish(channel="c")
    queue.settle("retry", queue.claim(limit=1), ["boom"], ["1 hour"])
    assert queue.claim() == []

    assert queue.call("retry_now", [first, second]) == [first]

    assert queue.claim_one().id == first


def test_running_ready_and_ended_messages_are_left_alone(queue: Queue) -> None:
    running, ready = queue.publish("a"), queue.publish("b")
    queue.claim("a")

    assert queue.call("retry_now", [running, ready, 4711]) == []
    assert queue.rows("SELECT * FROM messages.audit") == []


def test_the_audit_entry_has_the_topic_and_how_many_messages_are_retried(queue: Queue) -> None:
    waiting = queue.publish_many(2, wait="1 hour")

    queue.call("retry_now", waiting)

    assert queue.row("SELECT action, topic, detail ->> 'count' AS count FROM messages.audit") == ("retry_now", "t", "2")


def test_an_open_transaction_that_waits_for_the_message_does_not_block_it(queue: Queue, other: Queue) -> None:
    published = queue.publish(wait="1 hour")

    with other.conn.transaction():
        other.rows("SELECT FROM messages.wait_for(%s)", [published])
        queue.conn.execute("SET lock_timeout = '1s'")
        assert queue.call("retry_now", [published]) == [published]
    queue.conn.execute("RESET lock_timeout")
