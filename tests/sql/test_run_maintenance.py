"""messages.run_maintenance: one reaper by hand, noted with what it did."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors

from tests.sql.queue import Queue


@pytest.mark.parametrize("task", ["expire_locks", "expire_messages", "purge"])
def test_it_does_what_the_reaper_does_and_notes_it(queue: Queue, task: str) -> None:
    queue.publish()
    queue.claim(lock_duration="0 s")
    queue.publish(expires_at="2020-01-01 00:00+00")
    queue.conn.execute(
        "INSERT INTO messages.alert (topic, result, delivered_at) VALUES ('t', 'failed', now() - interval '8 days')"
    )

    assert queue.call("run_maintenance", task) == 1

    (note,) = queue.rows("SELECT action, topic, target, detail FROM messages.audit")
    assert note == (task, None, None, {"count": 1})


@pytest.mark.parametrize("task", ["prune", "", None])
def test_what_is_no_reaper_is_refused(queue: Queue, task: Any) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="reaper is") as caught:
        queue.call("run_maintenance", task)

    assert caught.value.diag.message_hint == "use expire_locks, expire_messages or purge"
