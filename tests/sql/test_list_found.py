"""messages.found: what a list shows, in the order that was asked for."""

from __future__ import annotations

from tests.sql.deaths import die
from tests.sql.queue import Queue


def test_live_and_archived_ones_come_in_the_given_order_and_what_is_gone_is_left_out(queue: Queue) -> None:
    died, live = die(queue), queue.publish(payload={"a": 1})
    ended = queue.archived(died).archived_at

    rows = queue.rows(
        "SELECT * FROM messages.list_found(%s, %s::timestamptz[], 100)", [[live, 4711, died], [None, None, ended]]
    )

    assert [(row.id, row.state, row.preview) for row in rows] == [(live, "ready", '{"a": 1}'), (died, "failed", "1")]
