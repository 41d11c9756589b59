"""Every function that changes several messages locks their rows in the order of their ids: two sessions cannot deadlock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sql.queue import Background, Queue

pytestmark = pytest.mark.every_server

SETTLES = {
    "complete": [],
    "fail": [["boom"] * 2],
    "reject": [["boom"] * 2],
    "retry": [["boom"] * 2],
    "defer": [["1 s"] * 2],
    "release": [],
}


@pytest.mark.parametrize("settle", list(SETTLES))
def test_a_settle_in_the_order_of_the_claim_and_a_cancel_never_deadlock(
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any], settle: str
) -> None:
    queue.policy(max_attempts=5)
    later, sooner = queue.publish(wait="-1 s"), queue.publish(wait="-2 s")
    claimed = queue.claim()
    assert [c.id for c in claimed] == [sooner, later]

    with other.conn.transaction():
        other.rows("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [later])
        settling = background.start(queue.settle, settle, claimed, *SETTLES[settle])
        eventually(lambda: background.is_blocked(queue))
        # If the settle began with the message that was available sooner, this would be a deadlock.
        other.rows("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [sooner])

    assert settling.result(timeout=60) == []
