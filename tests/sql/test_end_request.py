"""messages.end_request: the answer of a request is stored, and returned if the request is sent again."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_the_answer_is_stored_with_its_request(queue: Queue) -> None:
    queue.rows("SELECT * FROM messages.begin_request(%s, %s, %s)", ["shop", "k", b"1"])
    queue.rows("SELECT * FROM messages.begin_request(%s, %s, %s)", ["shop", "other", b"1"])

    queue.call("end_request", "shop", "k", 201, "done")

    kept = queue.rows("SELECT key, status, answer FROM messages.web_request ORDER BY key")
    assert [(row.key, row.status, row.answer) for row in kept] == [("k", 201, "done"), ("other", None, None)]
