"""messages.lock_holders: sessions that have locked what others need."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sql.queue import Queue, Row

pytestmark = pytest.mark.every_server


def hold_the_tick(queue: Queue) -> None:
    queue.rows("SELECT * FROM messages.tick()")


def hold_the_policies(queue: Queue) -> None:
    queue.call("pause", "t")


def hold_the_subscriptions(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('source', 'sink')")


def hold_a_topic(queue: Queue) -> None:
    queue.claim("t", limit=1)


def hold_new_channels(queue: Queue) -> None:
    queue.call("create_channel_rates", "t", ["new"])


def hold_a_counter(queue: Queue) -> None:
    queue.publish("full")


@pytest.fixture(autouse=True)
def limits(queue: Queue) -> None:
    queue.policy("t", max_concurrency=5, channel_concurrency=5)
    queue.policy("full", max_depth=100, publish_rate=1000)
    for topic in ("t", "full"):
        queue.publish_many(2, topic)
    queue.claim("t", limit=1)
    queue.call("create_channel_rates", "t", ["old"])


def held(queue: Queue) -> dict[str, Row]:
    return {row.kind: row for row in queue.rows("SELECT * FROM messages.lock_holders()")}


@pytest.mark.parametrize(
    ("hold", "kinds"),
    [
        (hold_the_tick, {"tick", "update_conditions"}),
        (hold_the_policies, {"policies"}),
        (hold_the_subscriptions, {"policies"}),
        (hold_a_topic, {"topic"}),
        (hold_new_channels, {"channels"}),
        (hold_a_counter, {"depth", "publish_rate"}),
    ],
)
def test_the_holder_is_named_with_what_it_holds_and_the_statement_that_ends_it(
    queue: Queue, other: Queue, hold: Callable[[Queue], None], kinds: set[str]
) -> None:
    other.conn.execute("SET application_name = 'forgetful'")
    assert held(queue) == {}
    with other.conn.transaction(force_rollback=True):
        hold(other)
        found = held(queue)

    # A tick also holds rows that its tasks work on.
    assert set(found) - kinds == set() or hold is hold_the_tick
    assert kinds <= set(found)
    pid = other.conn.info.backend_pid
    for row in found.values():
        assert (row.pid, row.fix) == (pid, f"SELECT pg_terminate_backend({pid});")
        assert row.who.startswith(f"process {pid} (postgres, forgetful, idle in transaction)")
        assert row.since is not None
    assert held(queue) == {}


def test_a_channel_and_a_message_are_checked_if_they_are_given(queue: Queue, other: Queue) -> None:
    first = queue.publish("t", channel="c")
    queue.publish("t", channel="c")
    queue.claim("t")
    later = queue.publish("t", channel="c")
    with other.conn.transaction(force_rollback=True):
        assert [c.id for c in other.claim("t", limit=1)] == [later] != [first]

        found = queue.rows("SELECT * FROM messages.lock_holders('t', 'c', %s)", [later])

    assert {row.kind for row in found} == {"topic", "channel", "message"}
    assert {row.pid for row in found} == {other.conn.info.backend_pid}


def test_with_a_savepoint_the_oldest_possible_transaction_is_named(queue: Queue, other: Queue) -> None:
    with other.conn.transaction(force_rollback=True):
        with other.conn.transaction():
            hold_a_topic(other)
        found = held(queue)

    assert set(found) == {"topic"}
    assert found["topic"].pid == other.conn.info.backend_pid
    assert found["topic"].who.endswith(", most likely,")


def test_the_callers_own_locks_are_left_out(queue: Queue) -> None:
    with queue.conn.transaction():
        hold_a_topic(queue)

        assert held(queue) == {}
