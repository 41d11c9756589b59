"""A daemon that is killed while it holds all slots of a limit.

They are free when its locks expire, and never earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon.process import AT_ONCE_S, Daemon, end_locks
from tests.daemon.runs import Runs
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


@pytest.mark.every_server
@pytest.mark.parametrize(
    "settings",
    [{"max_concurrency": 2}, {"channel_concurrency": 2}, {"ordered": True}],
    ids=["topic", "channel", "ordered channel"],
)
def test_the_slots_of_a_killed_daemon_are_free_when_its_locks_expire_and_not_before(
    start: Start, database: Database, queue: Queue, runs: Runs, settings: dict[str, Any]
) -> None:
    # Until the first one is killed its locks are long: their remaining time is set below.
    queue.policy("job", max_attempts=2, lock_expired_delay="0 s", **settings)
    given: dict[str, Any] = {"environ": {"RUNS": database.dsn}, "concurrency": 10}
    slots = 1 if "ordered" in settings else 2
    first = start({"job": "timed:run"}, **given)
    published = queue.publish_many(4, "job", channel="c", payload={"for": 60})
    eventually(lambda: len(runs.rows()) == slots)
    start({"job": "timed:run"}, **given)

    first.kill()
    free_at = end_locks(queue.conn, first, "1 s")

    eventually(lambda: len(runs.rows()) == 2 * slots)
    after = runs.rows()[slots:]
    assert {run.pid for run in after} != {first.pid}
    assert len(free_at) == slots
    assert all(0 <= run.started - at <= AT_ONCE_S for run, at in zip(after, free_at, strict=True))
    assert queue.value("SELECT count(*) FROM messages.message WHERE claim_id IS NOT NULL") == slots
    if "ordered" in settings:
        assert {run.id for run in after} == {published[0]}
