"""max_concurrency: the maximum of running messages of a topic, across all daemons, and no fewer while messages wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.process import AT_ONCE_S, Daemon
from tests.daemon.runs import STEPS_OF_A_PAUSE, Runs
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Daemons = Callable[..., list[Daemon]]


@pytest.mark.usefixtures("probe_daemon")
@pytest.mark.every_server
@pytest.mark.parametrize(("limit", "daemons"), [pytest.param(1, 1, marks=pytest.mark.long), (6, 2)])
@pytest.mark.slow
def test_two_daemons_never_exceed_the_limit_and_use_nine_tenths_of_it(
    two_daemons: Daemons, queue: Queue, runs: Runs, limit: int, daemons: int
) -> None:
    queue.policy("job", max_concurrency=limit)
    two_daemons({"job": "timed:run"}, concurrency=4)

    queue.publish_many(3 * limit, "job", payload={"for": 3})

    latency = runs.until_done()
    assert len(runs.rows()) == 3 * limit
    assert len(runs.pids()) >= daemons
    assert runs.most_at_once() == limit
    assert runs.pause(limit) <= max(3 / 9, STEPS_OF_A_PAUSE * latency)


def test_a_raised_limit_applies_at_once(two_daemons: Daemons, queue: Queue, runs: Runs) -> None:
    queue.policy("job", max_concurrency=1)
    two_daemons({"job": "timed:run"})
    queue.publish_many(8, "job", payload={"for": 60})
    eventually(lambda: len(runs.rows()) == 1)

    queue.policy("job", max_concurrency=8)

    eventually(lambda: len(runs.rows()) == 8, within_s=AT_ONCE_S)
