"""messages.oldest_running_xid: all transactions with a lower id have ended. (The protocol is in test_new_message.py.)"""

from __future__ import annotations

import pytest

from pgrouse.client.call import run
from pgrouse.client.calls.claim import claim_with_next_due
from tests.sql.lock_timeouts import extend_timeout
from tests.sql.queue import Background, Queue

pytestmark = pytest.mark.every_server


def test_it_does_not_pass_a_running_transaction(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        running = other.call("draw_xid")
        assert queue.call("oldest_running_xid") <= running

    assert queue.call("oldest_running_xid") > running


def test_a_reader_without_a_transaction_id_does_not_hold_it_back(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        other.ids()
        own = queue.call("draw_xid")

        assert queue.call("oldest_running_xid") > own


def test_a_claim_reports_what_was_running_when_it_began(queue: Queue, other: Queue, background: Background) -> None:
    # The claim may not have seen what such a transaction published, although it has ended meanwhile.
    extend_timeout(queue, "lock_topic", "250ms")
    queue.policy(max_concurrency=2)
    queue.publish_many(2)

    with queue.conn.transaction():
        running = queue.call("draw_xid")
        queue.claim(limit=1)
        claim = background.start(run, other.conn, claim_with_next_due("w", ["t"], 1))
        while not background.is_blocked(other):
            assert not claim.done()

    found = claim.result(timeout=60)
    assert (len(found.messages), found.oldest_xid) == (1, running)
