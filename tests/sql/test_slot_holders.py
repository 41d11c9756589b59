"""slot_holders: who holds the places of a topic or channel that is at its limit."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_a_free_place_means_nobody_is_named(queue: Queue) -> None:
    queue.publish_many(2)
    queue.claim()

    assert queue.call("slot_holders", "t", None, 3) is None


def test_whoever_holds_the_last_place_is_named(queue: Queue) -> None:
    ids = queue.publish_many(2)
    queue.claim(worker="w1")

    held = queue.call("slot_holders", "t", None, 2)

    assert sorted(held, key=lambda place: place["id"]) == [{"worker": "w1", "id": each} for each in ids]


def test_a_channel_counts_its_own_only(queue: Queue) -> None:
    queue.publish_many(2, channel="a")
    mine = queue.publish(channel="b")
    queue.claim(worker="w1")

    assert queue.call("slot_holders", "t", "b", 1) == [{"worker": "w1", "id": mine}]
    assert queue.call("slot_holders", "t", "b", 2) is None


def test_no_more_than_twenty_are_named(queue: Queue) -> None:
    queue.publish_many(30)
    queue.claim()

    assert len(queue.call("slot_holders", "t", None, 30)) == 20
