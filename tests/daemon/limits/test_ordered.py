"""ordered: the messages of one channel run one after the other, in order, whatever their results and workers are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.daemon.process import Daemon
from tests.daemon.runs import STEPS_OF_A_PAUSE, Runs
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Daemons = Callable[..., list[Daemon]]


def in_order(runs: Runs, channel: str) -> bool:
    """Whether each began when the one before had ended, and none was skipped."""
    rows = runs.rows(channel)
    return [run.id for run in rows] == sorted(run.id for run in rows) and all(
        before.ended <= after.started for before, after in pairwise(rows)
    )


@pytest.mark.usefixtures("probe_daemon")
@pytest.mark.every_server
def test_two_daemons_process_each_channel_in_order_and_all_channels_in_parallel(
    two_daemons: Daemons, queue: Queue, runs: Runs
) -> None:
    queue.policy("job", ordered=True)
    two_daemons({"job": "timed:run"}, concurrency=3)

    for _ in range(3):
        for channel in "abcd":
            queue.publish("job", channel=channel, payload={"for": 3})

    latency = runs.until_done()
    assert len(runs.rows()) == 12
    assert len(runs.pids()) == 2
    assert all(in_order(runs, channel) for channel in "abcd")
    assert max(runs.pause(1, channel) for channel in "abcd") <= max(3 / 9, STEPS_OF_A_PAUSE * latency)


@pytest.mark.long
def test_a_message_in_backoff_runs_before_the_next_of_its_channel(
    two_daemons: Daemons, queue: Queue, runs: Runs
) -> None:
    queue.policy("job", ordered=True, max_attempts=3, backoff={"kind": "constant", "base": "0.5 s"})
    two_daemons({"job": "timed:run"})
    payloads = [{"for": 0.01}, {"for": 0.01, "fails": 2}, {"for": 0.01}]

    a = [queue.publish("job", channel="a", payload=payload) for payload in payloads]

    eventually(lambda: queue.ids() == [], within_s=60)
    ran = runs.rows("a")
    assert [run.id for run in ran] == [a[0], a[1], a[1], a[1], a[2]]
    assert in_order(runs, "a")
    assert all(after.started - before.ended >= 0.5 for before, after in pairwise(ran[1:4]))
