"""messages.workflow_state and messages.workflow_messages: what became of a workflow, and of each of its messages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue, Row


def of(queue: Queue, message_id: int, *arguments: Any) -> Row:
    given = ", ".join(["%s"] * (1 + len(arguments)))
    return queue.row(f"SELECT * FROM messages.workflow_state({given})", [[message_id], *arguments])


@pytest.mark.parametrize(
    ("end", "after_failed", "state"),
    [
        (None, "hold", "running"),
        ("fail", "hold", "held"),
        ("fail", "run", "failed"),
        ("cancel", "cancel", "cancelled"),
        ("complete", "hold", "finished"),
    ],
)
def test_each_state_has_a_word(queue: Queue, end: str | None, after_failed: str, state: str) -> None:
    first = queue.publish("a")
    queue.send(topic="b", after=[first], after_failed=after_failed)
    if end == "cancel":
        queue.call("cancel", [first])
    elif end:
        queue.settle(end, queue.claim("a"), *([["boom"]] if end == "fail" else []))
    queue.settle("complete", queue.claim("b"))

    assert of(queue, first).state == state


def test_of_a_group_with_more_messages_than_are_counted_the_latest_are_and_it_is_not_whole(queue: Queue) -> None:
    group = queue.publish_many(2_500, "page")
    queue.send(topic="book", after=group)

    latest, every = of(queue, group[0]), of(queue, group[0], ["*"], 10_000)
    assert (latest.total, latest.live, latest.is_whole) == (200, 200, False)
    assert (every.total, every.is_whole) == (2_501, True)


def test_only_messages_of_the_given_topics_are_counted_and_shown(queue: Queue) -> None:
    gone, kept = queue.publish("a.gone"), queue.publish("a.kept")
    last = queue.send(topic="b", after=[gone, kept]).id
    queue.settle("complete", queue.claim("a.gone"))
    queue.conn.execute("DELETE FROM messages.message_archive")

    seen = {
        topics: [row.id for row in queue.rows("SELECT * FROM messages.workflow_messages(%s, %s)", [gone, [topics]])]
        for topics in ("*", "a.*", "b", "none")
    }

    assert seen == {"*": [gone, kept, last], "a.*": [kept], "b": [last], "none": []}
    assert {topics: of(queue, gone, [topics]).total for topics in seen} == {t: len(ids) for t, ids in seen.items()}


def test_a_message_that_was_redriven_twice_is_replaced_in_its_place_and_in_the_edges(queue: Queue) -> None:
    first, other = queue.publish("a"), queue.publish("b")
    last = queue.send(topic="c", after=[other, first]).id
    became = first
    for _ in range(2):
        queue.settle("fail", queue.claim("a"), ["boom"])
        became = queue.row("SELECT * FROM messages.redrive(%s)", [[became]]).message_id

    rows = queue.rows("SELECT * FROM messages.workflow_messages(%s)", [first])

    assert [(row.id, row.after, row.state) for row in rows] == [
        (became, [], "ready"),
        (other, [], "ready"),
        (last, [other, became], "blocked"),
    ]
    assert of(queue, first).topic == "a"
