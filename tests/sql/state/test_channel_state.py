"""messages.channel_state: the channels with a row, and which of them are paused."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_a_channel_is_paused_until_its_own_pause_ends(queue: Queue) -> None:
    queue.later("0")
    queue.call("pause", "t", "too loud", resume_in="10 s", channel="c")
    queue.conn.execute("UPDATE messages.channel SET concurrency = 3")

    before = queue.row("SELECT * FROM messages.channel_state")
    queue.later("10 s")
    after = queue.row("SELECT * FROM messages.channel_state")

    assert (before.paused, before.paused_reason, before.resume_at, before.concurrency) == (
        *(True, "too loud", queue.value("SELECT messages.now()"), 3),
    )
    assert (after.paused, after.paused_at, after.paused_by, after.paused_reason, after.resume_at) == (
        *(False, None, None, None, None),
    )
