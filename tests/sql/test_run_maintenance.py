"""messages.run_maintenance: runs one task by hand, and records its result in the audit log."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors

from tests.sql.queue import Queue


@pytest.mark.parametrize("task", ["expire_locks", "expire_messages", "purge"])
def test_it_runs_the_task_and_writes_an_audit_entry(queue: Queue, task: str) -> None:
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
def test_an_unknown_task_is_refused(queue: Queue, task: Any) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="reaper is") as caught:
        queue.call("run_maintenance", task)

    assert caught.value.diag.message_hint == "use expire_locks, expire_messages or purge"
