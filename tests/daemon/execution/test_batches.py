"""Batches of messages, with handlers that add to them, processed by real daemons that are killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.daemon.process import Daemon, end_locks
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]
TOPICS = {name: f"tree:{name}" for name in ("grow", "grow_in_thread", "grow_in_a_transaction")}
LEVELS = 4


def test_handlers_add_to_a_closed_batch_which_is_finished_once_after_all_of_them(start: Start, queue: Queue) -> None:
    start(TOPICS)
    batches = {topic: queue.call("create_batch", topic, on_finish="finish", on_success="success") for topic in TOPICS}
    for topic, batch in batches.items():
        queue.publish(topic, payload=f"{LEVELS}", batch_id=batch)
        queue.call("close_batch", batch)

    eventually(lambda: len(payloads(queue)) == 2 * len(TOPICS))
    told = payloads(queue)

    # A full binary tree.
    size = 2**LEVELS - 1
    assert sorted((each["name"], each["event"]) for each in told) == sorted(
        (topic, event) for topic in TOPICS for event in ("finish", "success")
    )
    assert {(each["counts"]["total"], each["counts"]["succeeded"]) for each in told} == {(size, size)}


def payloads(queue: Queue) -> list[dict[str, Any]]:
    rows = queue.rows("SELECT payload FROM messages.message WHERE topic IN ('finish', 'success')")
    return [row.payload for row in rows]


def test_a_daemon_that_is_killed_in_a_handler_that_added_finishes_nothing_early_or_twice(
    start: Start, queue: Queue
) -> None:
    queue.policy("grow_and_wait", max_attempts=5, backoff={"kind": "none"})
    first = start({"grow_and_wait": "tree:grow_and_wait"})
    batch = queue.call("create_batch", on_finish="finish", on_failure="failure")
    queue.publish("grow_and_wait", batch_id=batch)
    queue.call("close_batch", batch)
    # What it added is committed, and it has not ended.
    eventually(lambda: queue.rows("SELECT FROM messages.message WHERE topic = 'leaf'"))

    first.kill()
    end_locks(queue.conn, first)
    between = queue.row("SELECT * FROM messages.batch_state WHERE id = %s", [batch])
    second = start({"grow_and_wait": "tree:grow_and_wait", "leaf": "work:echo"})
    second.open_gate()
    told = eventually(lambda: payloads(queue))

    # The killed attempt added a leaf, and so did the one that succeeded.
    assert (between.state, between.total, between.live) == ("closed", 2, 2)
    assert [each["counts"]["succeeded"] for each in told] == [3]
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'failure'") == 0
