"""messages.save_claim_cursor: a claim says where it ended."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_what_is_known_already_is_not_written_again(queue: Queue) -> None:
    for at, last in (("a", None), ("a", "a"), ("b", "a")):
        queue.call("save_claim_cursor", "channels t", at, last)

    assert [row.at for row in queue.rows("SELECT at FROM messages.claim_cursor ORDER BY n")] == ["a", "b"]
