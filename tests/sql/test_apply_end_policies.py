"""messages.apply_end_policies: what the policies hear of messages that end, whatever ends them."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize("end", ["complete", "fail", "reject", "cancel", "expire"])
def test_whatever_ends_a_message_makes_room_and_lets_go_of_its_key(queue: Queue, end: str) -> None:
    queue.policy("t", max_depth=5, key_ttl="1 ms")
    queue.publish(key="k")
    queue.publish(key="l")
    (claimed,) = queue.claim(limit=1, lock_duration="0 s" if end == "expire" else None)

    match end:
        case "cancel":
            queue.call("cancel", [claimed.id])
        case "expire":
            queue.call("expire_locks")
        case "complete":
            queue.settle("complete", [claimed])
        case _:
            queue.settle(end, [claimed], ["boom"])

    assert queue.depth() == 1
    assert queue.send(1, key="k", on_conflict="ignore").outcome == "inserted" or end == "complete"
    assert queue.value("SELECT count(*) FROM messages.held_key WHERE key = 'l' AND free_at IS NULL") == 1


def test_without_a_policy_it_is_not_called(own_queue: Queue) -> None:
    own_queue.conn.execute("SET track_functions = 'all'")
    with own_queue.conn.transaction():
        own_queue.publish_many(2)
        own_queue.settle("complete", own_queue.claim(limit=1))
        own_queue.policy("t", max_depth=5)
        own_queue.settle("complete", own_queue.claim(limit=1))
        calls = own_queue.rows("SELECT calls FROM pg_stat_xact_user_functions WHERE funcname = 'apply_end_policies'")

    assert calls == [(1,)]
