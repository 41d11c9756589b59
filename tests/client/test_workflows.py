"""Workflows from Python, and that a cancel ends a whole workflow or nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pgrouse import AsyncClient, Client, MessageNotFound
from pgrouse.errors import PgrouseError
from tests.server.postgres import Database
from tests.sql.queue import Background, Queue


@pytest.fixture
def client(database: Database) -> Iterator[Client]:
    with Client(database.dsn) as client:
        yield client


def publish_order(queue: Queue) -> list[int]:
    """Publish a workflow of three messages, the last of which comes however the second one ends."""
    check = queue.publish("check")
    bill = queue.send(topic="bill", after=[check]).id
    tidy = queue.send(topic="tidy", after=[bill], after_failed="run").id
    return [check, bill, tidy]


def results(queue: Queue, ids: list[int]) -> list[str | None]:
    return [ended and ended.result for ended in map(queue.archived, ids)]


def test_workflows_are_listed_and_shown_by_any_of_their_messages(client: Client, queue: Queue) -> None:
    first, second = publish_order(queue), publish_order(queue)
    queue.settle("fail", queue.claim("check", limit=1), ["boom"])

    graph = client.workflow_graph(first[2])

    assert [each.id for each in client.workflows()] == [second[0], first[0]]
    assert [each.id for each in client.workflows(state="held")] == [first[0]]
    assert [each.id for each in client.workflows(before=second[0], limit=1)] == [first[0]]
    assert (graph.workflow.id, graph.workflow.state, [each.id for each in graph.messages]) == (first[0], "held", first)


def test_its_dead_messages_are_redriven_and_the_rest_is_cancelled_at_once(client: Client, queue: Queue) -> None:
    check, bill, tidy = publish_order(queue)
    queue.settle("fail", queue.claim("check"), ["boom"])

    (redriven,) = client.redrive_workflow(tidy)
    cancelled = client.cancel_workflow(bill, "withdrawn")

    assert (redriven.archived_id, redriven.outcome) == (check, "redriven")
    assert sorted(cancelled) == [bill, tidy, redriven.message_id]
    assert queue.archived(tidy).error == "cancelled: withdrawn"
    assert client.cancel_workflow(bill) == []


def test_a_message_in_no_workflow_is_an_error(client: Client, queue: Queue) -> None:
    alone = queue.publish("alone")

    for call in (client.workflow_graph, client.cancel_workflow, client.redrive_workflow):
        with pytest.raises(MessageNotFound, match=f"message {alone} is in no workflow"):
            call(alone)
    assert queue.message(alone) is not None


def test_coroutines_do_the_same(database: Database, queue: Queue) -> None:
    ids = publish_order(queue)

    async def act() -> tuple[list[int], int, int, list[int]]:
        async with AsyncClient(database.dsn) as client:
            listed = [each.id for each in await client.workflows()]
            shown = len((await client.workflow_graph(ids[1])).messages)
            return listed, shown, len(await client.redrive_workflow(ids[0])), await client.cancel_workflow(ids[2])

    assert asyncio.run(act()) == (ids[:1], 3, 0, ids)


def test_a_cancel_that_is_killed_in_the_middle_has_ended_nothing(
    client: Client, queue: Queue, database: Database
) -> None:
    ids = publish_order(queue)
    other, background = Queue(database.connect()), Background(database.connect())

    with other.conn.transaction():
        other.conn.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [ids[-1]])
        cancel = background.start_blocked(Queue(client.conn), client.cancel_workflow, ids[0])
        queue.value("SELECT pg_terminate_backend(%s)", [client.conn.info.backend_pid])
        with pytest.raises(PgrouseError):
            cancel.result(timeout=60)

    assert results(queue, ids) == [None, None, None]
    assert [queue.message(each).id for each in ids] == ids


def test_a_cancel_leaves_what_was_settled_first_and_releases_nothing(
    client: Client, queue: Queue, database: Database
) -> None:
    ids = publish_order(queue)
    other, background = Queue(database.connect()), Background(database.connect())
    running = other.claim("check")

    with other.conn.transaction():
        other.settle("complete", running)
        cancel = background.start_blocked(Queue(client.conn), client.cancel_workflow, ids[0])
    cancelled = cancel.result(timeout=60)

    assert sorted(cancelled) == ids[1:]
    assert results(queue, ids) == ["success", "cancelled", "cancelled"]
    assert queue.claim("check", "bill", "tidy") == []


def test_a_settle_after_the_cancel_has_lost_its_lock(client: Client, queue: Queue) -> None:
    ids = publish_order(queue)
    running = queue.claim("check")

    client.cancel_workflow(ids[0])

    assert queue.settle("complete", running) == ids[:1]
    assert results(queue, ids) == ["cancelled"] * 3
