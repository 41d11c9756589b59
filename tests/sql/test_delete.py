"""messages.delete: messages that wait go without a trace."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_what_waits_is_gone_and_leaves_no_trace(queue: Queue) -> None:
    first, second = queue.publish(), queue.publish(wait="1 hour")

    assert queue.call("delete", [first, second, 2**62]) == [first, second]

    assert queue.ids() == []
    assert queue.rows("SELECT FROM messages.message_archive") == []
    audit = queue.row("SELECT action, topic, detail FROM messages.audit ORDER BY id DESC LIMIT 1")
    assert (audit.action, audit.topic, audit.detail["ids"]) == ("delete", "t", [first, second])


def test_what_runs_or_has_ended_is_left_alone(queue: Queue) -> None:
    ended = queue.publish()
    queue.settle("complete", queue.claim())
    runs = queue.publish()
    queue.claim()

    assert queue.call("delete", [ended, runs]) == []

    assert queue.ids() == [runs]
    assert queue.archived(ended).result == "success"


def test_a_row_that_somebody_holds_is_not_waited_for(queue: Queue, other: Queue) -> None:
    held, free = queue.publish_many(2)
    with other.conn.transaction():
        other.conn.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [held])

        assert queue.call("delete", [held, free]) == [free]


def test_its_key_and_its_place_in_a_full_topic_are_free_again(queue: Queue) -> None:
    queue.policy(max_depth=1)
    first = queue.publish(key="k")

    queue.call("delete", [first])

    assert queue.publish(key="k") > first


def test_what_comes_after_it_hears_of_its_end(queue: Queue) -> None:
    first = queue.publish()
    second = queue.send(after=[first], after_failed="cancel").id

    queue.call("delete", [first])
    queue.call("propagate_missed_ends", 1000)

    assert queue.archived(second).result == "cancelled"
