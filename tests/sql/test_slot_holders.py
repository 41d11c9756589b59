"""slot_holders: which messages hold the slots of a topic or channel that is at its limit."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_with_a_free_slot_no_holder_is_returned(queue: Queue) -> None:
    queue.publish_many(2)
    queue.claim()

    assert queue.call("slot_holders", "t", None, 3) is None


def test_the_holder_of_the_last_slot_is_returned(queue: Queue) -> None:
    ids = queue.publish_many(2)
    queue.claim(worker="w1")

    held = queue.call("slot_holders", "t", None, 2)

    assert sorted(held, key=lambda holder: holder["id"]) == [{"worker": "w1", "id": each} for each in ids]


def test_a_channel_counts_only_its_own_messages(queue: Queue) -> None:
    queue.publish_many(2, channel="a")
    mine = queue.publish(channel="b")
    queue.claim(worker="w1")

    assert queue.call("slot_holders", "t", "b", 1) == [{"worker": "w1", "id": mine}]
    assert queue.call("slot_holders", "t", "b", 2) is None


def test_at_most_twenty_holders_are_returned(queue: Queue) -> None:
    queue.publish_many(30)
    queue.claim()

    assert len(queue.call("slot_holders", "t", None, 30)) == 20
