"""messages.audit_messages: one entry for an action on many messages."""

from __future__ import annotations

from tests.sql.queue import Queue, Row


def recorded(queue: Queue, topics: list[str], ids: list[int]) -> list[Row]:
    queue.value("SELECT messages.audit_messages('cancel', %s, %s, '{\"reason\": null}')", [topics, ids])
    return queue.rows("SELECT topic, target, detail FROM messages.audit")


def test_one_message_is_the_target(queue: Queue) -> None:
    assert recorded(queue, ["mail"], [7]) == [("mail", "7", {"count": 1})]


def test_several_messages_are_counted_and_the_first_hundred_ids_listed(queue: Queue) -> None:
    (row,) = recorded(queue, ["mail", "mail"], list(range(1, 501)))

    assert (row.topic, row.target, row.detail["count"]) == ("mail", None, 500)
    assert row.detail["ids"] == list(range(1, 101))


def test_several_topics_are_listed_in_the_detail(queue: Queue) -> None:
    (row,) = recorded(queue, ["b", "a"], [1, 2])

    assert (row.topic, row.detail["topics"]) == (None, ["a", "b"])


def test_an_action_on_no_message_is_not_recorded(queue: Queue) -> None:
    assert recorded(queue, [], []) == []
