"""channel_min_interval: the minimum time between the starts of two messages of one channel, across all daemons."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import median

import pytest

from tests.daemon.process import Daemon
from tests.daemon.runs import Runs
from tests.sql.queue import Queue

Daemons = Callable[..., list[Daemon]]


@pytest.mark.usefixtures("probe_daemon")
@pytest.mark.every_server
def test_two_daemons_keep_the_interval_in_each_channel_and_lose_a_tenth_at_most(
    two_daemons: Daemons, queue: Queue, runs: Runs
) -> None:
    queue.policy("job", channel_min_interval="0.6 s")
    queue.conn.execute(
        "INSERT INTO messages.channel (topic, channel, min_interval) "
        "VALUES ('job', 'quick', '0.5 s'), ('job', 'free', '0')"
    )
    two_daemons({"job": "timed:run"})

    for channel, count in (("a", 7), ("b", 7), ("quick", 9), ("free", 20)):
        queue.publish_many(count, "job", channel=channel, payload={"for": 0.01})

    latency = runs.until_done()
    for channel, interval in (("a", 0.6), ("b", 0.6), ("quick", 0.5)):
        claimed = runs.claimed_at(channel)
        assert min(b - a for a, b in pairwise(claimed)) >= interval - 2e-6
        # Usually: a machine may pause now and then, and a slow one needs longer to claim at all.
        assert median(b - a for a, b in pairwise(claimed)) <= interval + max(interval / 9, 3 * latency)
    free = runs.claimed_at("free")
    assert free[-1] - free[0] < (len(free) - 1) * 0.6 / 2, "with the interval of the others it would be twice as long"
