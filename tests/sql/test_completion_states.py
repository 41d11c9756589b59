"""messages.completion_states: what became of messages that a handler completed in a transaction of its own."""

from __future__ import annotations

import psycopg
import pytest

from tests.server.postgres import Database
from tests.sql.queue import Queue, Row

STATES = "SELECT * FROM messages.completion_states(%s, %s)"


def states(queue: Queue, claimed: list[Row]) -> dict[int, str]:
    pairs = [[row.id for row in claimed], [row.claim_id for row in claimed]]
    return {row.id: row.state for row in queue.rows(STATES, pairs)}


def test_a_message_is_held_open_or_a_success(queue: Queue, database: Database) -> None:
    held, open_, done = queue.publish_many(3)
    claimed = queue.claim()
    queue.settle("complete", claimed[2:])
    with psycopg.connect(database.dsn) as other:
        Queue(other).settle("complete", claimed[1:2])

        assert states(queue, claimed) == {held: "held", open_: "open", done: "success"}
        other.rollback()

    assert states(queue, claimed)[open_] == "held"


def test_a_heartbeat_that_is_not_committed_opens_nothing(queue: Queue, database: Database) -> None:
    published = queue.publish()
    claimed = queue.claim()
    with psycopg.connect(database.dsn) as other:
        Queue(other).settle("heartbeat", claimed)

        assert states(queue, claimed) == {published: "held"}


@pytest.mark.parametrize("how", ["cancel", "release", "claim"])
def test_a_message_that_ended_or_was_claimed_otherwise_is_lost(queue: Queue, how: str) -> None:
    published = queue.publish()
    claimed = queue.claim()
    if how == "cancel":
        queue.call("cancel", [published])
    else:
        queue.settle("release", claimed)
    if how == "claim":
        queue.claim()

    assert states(queue, claimed) == {published: "lost"}


def test_a_success_of_which_nothing_is_kept_is_a_success(queue: Queue) -> None:
    queue.policy(archive_success="none")
    published = queue.publish()
    claimed = queue.claim()
    queue.settle("complete", claimed)

    assert states(queue, claimed) == {published: "success"}


def test_no_ids_return_nothing(queue: Queue) -> None:
    assert states(queue, []) == {}
