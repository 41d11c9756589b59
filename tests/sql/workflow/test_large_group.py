"""A message that comes after a group of many thousands.

The tests measure what each end of the group costs, and what the message gets of them.
"""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

GROUP, PART = 100_000, 5_000


def end(queue: Queue, ids: list[int]) -> int:
    """Pass the ends of some messages on to their successors; return how many pages were read."""
    record(queue, ids)
    call = "EXPLAIN (ANALYZE, BUFFERS, FORMAT json) SELECT messages.propagate_ends(%s, true)"
    plan = queue.value(call, [ids])[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def record(queue: Queue, ids: list[int]) -> None:
    """Record ends that their transaction has not propagated."""
    queue.conn.execute("SET session_replication_role = replica")
    queue.conn.execute("INSERT INTO messages.end_event SELECT unnest(%s::bigint[]), 'success'", [ids])
    queue.conn.execute("RESET session_replication_role")


@pytest.mark.timeout(600)
def test_a_message_comes_after_a_hundred_thousand_and_gets_what_they_returned(queue: Queue) -> None:
    members = queue.publish_many(GROUP, "part")
    last = queue.send(topic="join", after=members).id

    while parts := queue.claim("part", limit=PART):
        assert queue.claim("join") == []
        queue.settle("complete", parts, ["7"] * len(parts))
    (join,) = queue.claim("join")
    ended = queue.rows("SELECT id, output FROM messages.predecessors(%s, %s)", [join.id, join.claim_id])

    assert join.id == last
    assert [row.id for row in ended] == members
    assert {row.output for row in ended} == {"7"}


def test_behind_a_held_snapshot_ends_do_not_read_those_before_them(queue: Queue, other: Queue) -> None:
    members = queue.publish_many(20_000)
    queue.send(after=members)
    end(queue, members[:1])
    first = end(queue, members[1:2])
    with other.conn.transaction():
        other.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.value("SELECT count(*) FROM messages.dependency")
        record(queue, members[2:-10])
        queue.value("SELECT messages.propagate_ends(%s, true)", [members[2:-10]])

        later = end(queue, members[-10:-9])

    assert later < 2 * first
