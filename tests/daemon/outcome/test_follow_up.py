"""ctx.publish(): a handler publishes exactly once in its transaction, and otherwise at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgrouse import publish
from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]
TOPICS = {
    name: f"follow:{name}"
    for name in (
        "in_transaction",
        "in_transaction_in_thread",
        "outside",
        "outside_in_thread",
        "in_batch",
    )
}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def followers(queue: Queue) -> list[tuple[Any, ...]]:
    """Return what was published to `next`."""
    return queue.conn.execute(
        "SELECT payload, headers FROM messages.message WHERE topic = 'next' ORDER BY id"
    ).fetchall()


@pytest.fixture
def work(start: Start, queue: Queue) -> Callable[..., Any]:
    """Publish a message with a trace, and return its archive row; the first call starts the daemon.

    It is called as `work(topic, payload)`.
    """
    begun: list[Daemon] = []

    def work_(topic: str, payload: Any = "x") -> Any:
        if not begun:
            child = {"handler": "follow:in_child", "isolation": "process", "concurrency": 1}
            begun.append(
                start({**TOPICS, "in_batch": {"handler": "follow:in_batch", "batch_size": 10}, "in_child": child})
            )
        published = publish(
            queue.conn, topic, payload, headers={"traceparent": PARENT, "tracestate": "a=1", "other": 1}
        )
        return eventually(lambda: queue.archived(published))

    return work_


def test_messages_that_handlers_publish_commit_with_the_settle_and_share_the_trace(
    work: Callable[..., Any], queue: Queue, journal: Journal
) -> None:
    trace = {"traceparent": PARENT, "tracestate": "a=1"}
    for topic in ("in_transaction", "in_transaction_in_thread"):
        ended = work(topic)
        assert ended.result == "success", ended.error
        assert journal.entry("published", ended.id)["became"] == "inserted"
        assert followers(queue) == [({"of": ended.id}, trace)]
        failed = work(topic, "raise")
        assert failed.error.rstrip().endswith(
            "KeyTaken: a message of topic next with the key 'k' waits already: nothing was published"
        )
        queue.conn.execute("DELETE FROM messages.message")
        undone = work(topic, "raise")
        assert undone.error.rstrip().endswith("ValueError: changed my mind")
        assert followers(queue) == []
    for topic in ("outside", "outside_in_thread"):
        for payload, result in (("x", "success"), ("raise", "failed")):
            ended = work(topic, payload)
            assert ended.result == result
            assert followers(queue) == [({"of": ended.id}, {**trace, "h": 1})]
            queue.conn.execute("DELETE FROM messages.message")
    ended = work("in_batch")
    assert (ended.result, followers(queue)) == ("success", [({"of": ended.id}, None)])


@pytest.mark.long
def test_a_child_has_no_connection_to_publish_on(work: Callable[..., Any], queue: Queue) -> None:
    ended = work("in_child")

    assert ended.result == "failed"
    names = "ctx.transaction(), ctx.publish(), ctx.step() and ctx.signal_url()"
    assert f'{names} are not available with isolation = "process"' in ended.error


FORGETFUL = ("forgets", "keeps_it", "returns_it", "forgets_in_transaction", "forgets_in_batch", "forgets_in_child")


@pytest.mark.long
def test_a_publish_that_is_not_awaited_fails_the_attempt_and_is_logged(start: Start, queue: Queue) -> None:
    kinds = {
        "forgets_in_batch": {"batch_size": 10},
        "forgets_in_child": {"isolation": "process", "concurrency": 1},
    }
    daemon = start({name: {"handler": f"follow:{name}", **kinds.get(name, {})} for name in FORGETFUL})

    published = {name: queue.publish(name) for name in FORGETFUL}

    ended = {name: eventually(lambda each=each: queue.archived(each), 60) for name, each in published.items()}
    assert {name: row.result for name, row in ended.items()} == dict.fromkeys(published, "failed")
    expected = "RuntimeError: ctx.publish('next', ...) was not awaited, and published nothing: await it"
    assert [name for name in FORGETFUL if expected not in ended[name].error] == []
    # Nothing else is named, as what ends a coroutine.
    assert [name for name in FORGETFUL if "During handling" in ended[name].error] == []
    assert followers(queue) == []
    assert daemon.event("publish.never_awaited", topic="next")["level"] == "error"


def test_a_publish_that_a_task_awaits_is_not_reported_as_forgotten(start: Start, queue: Queue) -> None:
    daemon = start({"job": "follow:leaves_it_to_tasks"})

    published = queue.publish("job")

    assert eventually(lambda: queue.archived(published)).result == "success"
    eventually(lambda: sorted(payload for payload, _ in followers(queue)) == [1, 2, 3, 4, 5])
    assert daemon.events("publish.never_awaited") == []
