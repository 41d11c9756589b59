"""messages.key_holder: which message holds a key."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_it_is_the_message_whose_hold_has_not_expired(queue: Queue) -> None:
    queue.conn.execute(
        """
        INSERT INTO messages.held_key (topic, key, message_id, free_at)
        VALUES ('t', 'lives', 1, NULL), ('t', 'ended', 2, now() + interval '1 hour'), ('t', 'over', 3, now() - interval '1 s')
        """
    )

    held = {
        key: queue.row("SELECT * FROM messages.key_holder('t', %s)", [key]).message_id for key in ("lives", "ended")
    }
    free = [queue.row("SELECT * FROM messages.key_holder('t', %s)", [key]).message_id for key in ("over", "unknown")]

    assert held == {"lives": 1, "ended": 2}
    assert free == [None, None]
