"""explain: the one answer to "why is my message not running?"."""

from __future__ import annotations

import json

import pytest
from psycopg import errors

from tests.sql.queue import Queue

EXPLAIN = "SELECT * FROM messages.explain(%s)"


def test_it_follows_a_message_from_its_publish_to_its_end(queue: Queue) -> None:
    queue.call("register_worker", "w", "h", 7, "1", ["t"], 10)
    queue.policy(max_attempts=2)
    message = queue.publish()
    seen = [queue.row(EXPLAIN, [message]).code]
    claimed = queue.claim()
    seen.append(queue.row(EXPLAIN, [message]).code)
    queue.settle("retry", claimed, ["boom"], ["1 s"])
    seen.append(queue.row(EXPLAIN, [message]).code)
    queue.later("2 s")
    queue.settle("complete", queue.claim())
    seen.append(queue.row(EXPLAIN, [message]).code)

    assert seen == ["ready", "running", "retrying", "success"]


@pytest.mark.parametrize("state", ["waiting", "running", "ended"])
def test_the_contents_are_not_shown(queue: Queue, state: str) -> None:
    secret = {"secret": "s3cret"}
    message = queue.publish(payload=secret, headers=secret)
    queue.conn.execute("UPDATE messages.message SET state = %s", [json.dumps(secret)])
    if state != "waiting":
        claimed = queue.claim()
    if state == "ended":
        queue.settle("complete", claimed)

    shown = queue.value("SELECT jsonb_agg(e)::text FROM messages.explain(%s) AS e", [message])

    assert "s3cret" not in shown


def test_an_id_is_needed(queue: Queue) -> None:
    with pytest.raises(errors.NullValueNotAllowed, match="needs the id of a message"):
        queue.rows(EXPLAIN, [None])


def test_it_only_reads(queue: Queue) -> None:
    message = queue.publish()

    with queue.conn.transaction():
        queue.conn.execute("SET TRANSACTION READ ONLY")
        assert queue.rows(EXPLAIN, [message])


@pytest.mark.newest
def test_its_cost_is_bounded_however_long_the_queue_is(own_queue: Queue) -> None:
    own_queue.publish_many(30_000, channel="c")
    own_queue.publish_many(30_000)
    in_channel, outside = own_queue.publish(channel="c"), own_queue.publish()
    own_queue.conn.execute("VACUUM ANALYZE messages.message")

    assert own_queue.buffers(EXPLAIN, [in_channel]) < 3000
    assert own_queue.buffers(EXPLAIN, [outside]) < 3000


@pytest.mark.parametrize("role", ["operator", "analyst"])
def test_operators_and_analysts_may_call_it(queue: Queue, other: Queue, role: str) -> None:
    message = queue.publish()
    other.conn.execute(f"SET ROLE messages_{role}".encode())

    assert other.rows(EXPLAIN, [message])[0].code == "unhandled"
