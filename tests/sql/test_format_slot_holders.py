"""format_slot_holders: the holders of slots as text for people."""

from __future__ import annotations

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue


def test_three_holders_are_named_and_the_others_are_indicated(queue: Queue) -> None:
    holders = [{"worker": "w", "id": each} for each in (1, 2, 3, 4)]

    assert queue.call("format_slot_holders", Jsonb(holders[:1])) == "w (message 1)"
    assert queue.call("format_slot_holders", Jsonb(holders)) == "w (message 1), w (message 2), w (message 3), ..."
