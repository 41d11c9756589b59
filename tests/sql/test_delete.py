"""messages.delete: waiting messages are deleted without an archive row."""

from __future__ import annotations

from tests.sql.queue import Queue


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
