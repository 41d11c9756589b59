"""messages.prune_claim_cursors: of the positions where claims ended, only the newest is kept, and not for ever."""

from __future__ import annotations

from tests.sql.queue import Queue


def note(queue: Queue, count: int, walk: str = "channels t") -> None:
    for n in range(count):
        queue.call("save_claim_cursor", walk, str(n), None)


def kept(queue: Queue) -> list[str]:
    return [row.at for row in queue.rows("SELECT at FROM messages.claim_cursor ORDER BY n")]


def test_the_newest_of_each_walk_is_kept(queue: Queue) -> None:
    note(queue, 3)
    note(queue, 2, "channels u")

    assert queue.call("prune_claim_cursors") == 3
    assert kept(queue) == ["2", "1"]


def test_after_an_hour_without_a_claim_none_is_kept(queue: Queue) -> None:
    note(queue, 1)
    queue.conn.execute("UPDATE messages.claim_cursor SET noted_at = noted_at - interval '2 hours'")

    assert (queue.call("prune"), kept(queue)) == (1, [])


def test_it_is_bounded_and_waits_for_no_lock(queue: Queue, other: Queue) -> None:
    note(queue, 9)

    with other.conn.transaction():
        other.row("SELECT FROM messages.claim_cursor WHERE at = '0' FOR UPDATE")
        assert queue.call("prune_claim_cursors", 3) == 3

    assert kept(queue) == ["0", "4", "5", "6", "7", "8"]
