"""messages.save_claim_cursor: records where a claim ended."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_an_unchanged_position_is_not_written_again(queue: Queue) -> None:
    for at, last in (("a", None), ("a", "a"), ("b", "a")):
        queue.call("save_claim_cursor", "channels t", at, last)

    assert [row.at for row in queue.rows("SELECT at FROM messages.claim_cursor ORDER BY n")] == ["a", "b"]
