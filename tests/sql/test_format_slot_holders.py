"""format_slot_holders: held places for people."""

from __future__ import annotations

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue


def test_three_are_named_and_the_rest_is_hinted_at(queue: Queue) -> None:
    places = [{"worker": "w", "id": each} for each in (1, 2, 3, 4)]

    assert queue.call("format_slot_holders", Jsonb(places[:1])) == "w (message 1)"
    assert queue.call("format_slot_holders", Jsonb(places)) == "w (message 1), w (message 2), w (message 3), …"
