"""explain_queue_position: which messages are claimed first."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_it_counts_the_messages_that_go_first(queue: Queue) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)
    queue.publish_many(3)
    message = queue.publish()

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert (row.code, row.reason, row.detail["ahead"]) == ("behind", "3 ready messages of topic t come first", 3)


def test_workers_without_a_free_slot_are_named(queue: Queue) -> None:
    for name in ("w1", "w2"):
        queue.call("register_worker", name, "h", 7, "1", ["t"], 10)
        queue.call("touch_worker", name, {"in_flight": 10})
    message = queue.publish()

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])
    queue.call("touch_worker", "w2", {"in_flight": 9})
    with_a_place = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.code == "workers_busy"
    assert [w["worker"] for w in row.detail["workers"]] == ["w1", "w2"]
    assert with_a_place.code == "ready"
