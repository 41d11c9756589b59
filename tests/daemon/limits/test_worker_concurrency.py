"""worker_concurrency: how many messages of a topic each daemon runs at once, changed while they run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.process import AT_ONCE_S, Daemon
from tests.daemon.runs import Runs
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Daemons = Callable[..., list[Daemon]]

MOST_BY_WORKER = """
    SELECT max((
      SELECT count(*) FROM run AS o
      WHERE o.pid = r.pid AND o.started <= r.started AND coalesce(o.ended, 'infinity') > r.started))
    FROM run AS r
"""


@pytest.mark.long
@pytest.mark.usefixtures("probe_daemon")
def test_each_daemon_runs_as_many_and_the_fleet_twice_as_many(two_daemons: Daemons, queue: Queue, runs: Runs) -> None:
    queue.policy("job", worker_concurrency=2)
    two_daemons({"job": "timed:run"})

    queue.publish_many(12, "job", payload={"for": 1})

    runs.until_done()
    assert queue.value(MOST_BY_WORKER) == 2
    assert (runs.most_at_once(), len(runs.pids())) == (4, 2)


def test_a_changed_limit_applies_without_a_restart_and_ends_nothing_that_runs(
    two_daemons: Daemons, queue: Queue, runs: Runs
) -> None:
    queue.policy("job", worker_concurrency=1)
    two_daemons({"job": "timed:run"})
    queue.publish_many(8, "job", payload={"for": 60})
    eventually(lambda: len(runs.rows()) == 2)

    queue.policy("job", worker_concurrency=3)
    eventually(lambda: len(runs.rows()) == 6, within_s=AT_ONCE_S)
    queue.policy("job", worker_concurrency=1)

    assert queue.value("SELECT count(*) FROM messages.message WHERE claim_id IS NOT NULL") == 6
    assert queue.claim("job", worker="third") != []
    assert all(run.ended is None for run in runs.rows())
