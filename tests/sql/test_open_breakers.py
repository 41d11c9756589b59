"""messages.open_breakers: topics that their breaker stops."""

from __future__ import annotations

from tests.sql.queue import Queue


def open_breaker(queue: Queue, topic: str) -> None:
    queue.conn.execute(
        "INSERT INTO messages.breaker (topic, position, probe_at, reason) VALUES (%s, 'open', messages.now() + interval '10 minutes', '5 of 5 failed')",
        [topic],
    )


def test_it_lists_open_breakers_and_no_closed_or_removed_one(queue: Queue) -> None:
    queue.policy("mail", breaker={"pause": "10m"})
    open_breaker(queue, "mail")
    open_breaker(queue, "without.policy")

    found = queue.rows("SELECT * FROM messages.open_breakers()")

    assert [(row.topic, row.what) for row in found] == [("mail", "the breaker of mail is open: 5 of 5 failed")]
    queue.conn.execute("UPDATE messages.breaker SET position = 'closed', probe_at = NULL")
    assert queue.rows("SELECT * FROM messages.open_breakers()") == []
