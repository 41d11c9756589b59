"""What side tables have of a message, its steps, predecessors and log lines, leaves with it."""

from __future__ import annotations

import pytest

from tests.server.postgres import Database
from tests.sql.deaths import die
from tests.sql.queue import Queue

TABLES = ("step", "predecessor_list", "attempt_log")


@pytest.fixture
def queue(own_queue: Queue) -> Queue:
    """A database of its own: its days are dropped."""
    return own_queue


def leave(queue: Queue, *ids: int) -> None:
    """Let messages have a row in each side table."""
    for statement in (
        "INSERT INTO messages.step (message_id, name, result, attempt) SELECT n, 's', '1', 1 FROM unnest(%s) AS n",
        "INSERT INTO messages.predecessor_list (message_id, ids, workflow_id) SELECT n, '{1}', 1 FROM unnest(%s) AS n",
        "INSERT INTO messages.attempt_log (message_id, claim_id, attempt, locked_at, lines, left_out)"
        " SELECT n, 1, 1, now(), 'x', 0 FROM unnest(%s) AS n",
    ):
        queue.conn.execute(statement.encode(), [list(ids)])


def left(queue: Queue) -> dict[str, list[int]]:
    """Return the messages that have rows, by table."""
    found = {table: queue.rows(f"SELECT message_id FROM messages.{table} ORDER BY 1") for table in TABLES}
    return {table: [row[0] for row in rows] for table, rows in found.items()}


def test_a_purge_deletes_them_with_the_message(queue: Queue) -> None:
    own, short, stays = die(queue, retention="1 hour"), die(queue, "short"), die(queue)
    leave(queue, own, short, stays)
    queue.policy("short", retention="1 day")
    queue.later("3 days")

    queue.call("purge")

    assert left(queue) == {table: [stays] for table in TABLES}
    queue.row("SELECT * FROM messages.purge_archive(messages.now())")
    assert left(queue) == {table: [] for table in TABLES}


def test_the_tick_that_drops_a_day_deletes_those_of_its_messages_wherever_it_was_before(queue: Queue) -> None:
    first, stays, gone = die(queue), die(queue, retention="60 days"), die(queue)
    leave(queue, first, stays, gone)
    queue.call("prune")
    queue.later("32 days")

    queue.rows("SELECT * FROM messages.tick()")

    assert left(queue) == {table: [stays] for table in TABLES}


def test_a_tick_deletes_those_of_10_000_messages(queue: Queue) -> None:
    leave(queue, *range(1, 12_001))

    queue.call("prune")
    once = {table: len(ids) for table, ids in left(queue).items()}
    queue.call("prune")

    assert once == dict.fromkeys(TABLES, 2_000)
    assert left(queue) == {table: [] for table in TABLES}


def test_a_call_goes_on_while_it_finds_some_and_continues_there_in_a_cycle(queue: Queue) -> None:
    ids = [die(queue) for _ in range(6)]
    leave(queue, *ids)
    queue.conn.execute("DELETE FROM messages.message_archive WHERE id <> ALL (%s)", [ids[2:4]])

    assert [queue.call("prune_orphans", 2) for _ in range(4)] == [6, 6, 0, 0]
    assert left(queue) == dict.fromkeys(TABLES, ids[2:4])


def test_a_row_that_another_session_holds_stays_until_that_ends(queue: Queue, own_database: Database) -> None:
    leave(queue, 1, 2)
    holder = own_database.connect()
    with holder.transaction():
        holder.execute("SELECT FROM messages.attempt_log WHERE message_id = 1 FOR UPDATE")
        queue.call("prune")
        assert left(queue)["attempt_log"] == [1]
    queue.call("prune")
    queue.call("prune")
    assert left(queue)["attempt_log"] == []
