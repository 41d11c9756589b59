"""messages.live_state: what a message that has not ended is called, wherever it is shown."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from pgrouse.client.call import run
from pgrouse.client.calls.workflow import workflow_messages
from pgrouse.client.message_state import DEAD, LIVE, RESULTS
from pgrouse.client.queries.message import find_live, find_message
from pgrouse.config.alerts import AlertKind
from tests.sql.queue import Queue

HOUR = ["1 hour"]
# The states for which a search finds a message.
SEARCH = f"""
    SELECT string_agg(s.state, ', ')
    FROM (VALUES {", ".join(f"('{each}')" for each in LIVE)}) AS s (state)
    CROSS JOIN LATERAL messages.find_messages('t', ARRAY[s.state], p_key => {{}}) AS f
    WHERE f.id IS NOT NULL"""


def put_in_state(queue: Queue, state: str, channel: str | None) -> int:
    """Return a message that is in the state, or that is "deferred" or has an "expired lock"."""
    if state == "expired lock":
        queue.policy(lock_expired_delay="1 hour")
    if state == "blocked":
        return int(queue.send(channel=channel, key="k", after=[queue.publish("before")]).id)
    message_id = queue.publish(channel=channel, key="k", max_attempts=5, wait="1 hour" if state == "delayed" else "0")
    claimed = [] if state in ("ready", "delayed") else queue.claim(lock_duration="0 s" if "lock" in state else "1 hour")
    match state:
        case "retrying":
            queue.settle("retry", claimed, ["boom"], HOUR)
        case "expired lock":
            queue.call("expire_locks")
        case "deferred":
            queue.settle("defer", claimed, HOUR)
        case "waiting":
            queue.settle("wait_for_event", claimed, ["paid"], [1])
    return message_id


def words(queue: Queue, message_id: int) -> dict[str, str]:
    """Return what everything that shows a message calls this one; and the words that find it in a search by its key."""
    successor = queue.send(topic="after", after=[message_id]).id
    read = {
        "state": f"SELECT state FROM messages.state WHERE id = {message_id}",
        "find_messages": f"SELECT state FROM messages.find_messages('t') WHERE id = {message_id}",
        "lineage": f"SELECT state FROM messages.lineage({message_id}) WHERE kind = 'this'",
        "workflow": f"SELECT state FROM messages.workflow({successor}) WHERE id = {message_id}",
        "search": SEARCH.format("NULL"),
        "search by key": SEARCH.format("'k'"),
    }
    record = run(queue.conn, find_message(message_id))
    assert record is not None
    listed = run(queue.conn, find_live("t", None, None, 0, 10))
    of_workflow = {each.id: each.state for each in run(queue.conn, workflow_messages(message_id))}
    return {face: queue.value(statement) for face, statement in read.items()} | {
        "find_message": record.state,
        "find_live": listed[0].state,
        "find_live by state": next(state for state in LIVE if run(queue.conn, find_live("t", None, state, 0, 10))),
        "workflow_messages": str(of_workflow[message_id]),
    }


@pytest.mark.parametrize(("channel", "ordered"), [(None, False), ("c", False), ("c", True)])
@pytest.mark.parametrize(
    ("put", "word"),
    [
        ("ready", "ready"),
        ("delayed", "delayed"),
        ("blocked", "blocked"),
        ("running", "running"),
        ("retrying", "retrying"),
        ("expired lock", "retrying"),
        ("deferred", "delayed"),
        ("waiting", "waiting"),
    ],
)
def test_everything_that_shows_a_message_calls_it_the_same(
    queue: Queue, put: str, word: str, channel: str | None, ordered: bool
) -> None:
    if ordered:
        queue.policy(ordered=True)
    message_id = put_in_state(queue, put, channel)

    found = words(queue, message_id)

    assert found == dict.fromkeys(found, word)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("put", ["delayed", "retrying", "deferred"])
def test_it_is_ready_by_the_clock_of_the_queue(queue: Queue, put: str, ordered: bool) -> None:
    if ordered:
        queue.policy(ordered=True)
    message_id = put_in_state(queue, put, "c" if ordered else None)
    queue.later("2 hours")

    found = words(queue, message_id)

    assert found == dict.fromkeys(found, "ready")


def test_it_is_part_of_the_statement_that_calls_it(queue: Queue) -> None:
    plan = queue.rows("EXPLAIN (VERBOSE, COSTS OFF) SELECT id, state FROM messages.state WHERE state = 'ready'")

    text = "\n".join(line for (line,) in plan)
    assert ("live_state" in text, "lock_expired" in text) == (False, True), text


def test_an_archived_message_is_dead_by_its_result(queue: Queue) -> None:
    message_id = queue.publish()
    queue.settle("complete", queue.claim())
    check = queue.value(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'messages.message_archive'::regclass "
        "AND pg_get_constraintdef(oid) LIKE '%%result%%success%%'"
    )

    dead = []
    for result in RESULTS:
        queue.conn.execute("UPDATE messages.message_archive SET result = %s", [result])
        dead += [result for _ in queue.rows("SELECT FROM messages.dead WHERE id = %s", [message_id])]

    assert tuple(dead) == DEAD
    assert set(re.findall(r"'(\w+)'", check)) == set(RESULTS)
    assert set(DEAD) <= set(get_args(AlertKind))
