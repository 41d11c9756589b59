"""channel_min_interval: between the beginnings of two messages of one channel lies at least so long, over all daemons."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.daemon.process import Daemon
from tests.daemon.runs import Runs
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Daemons = Callable[..., list[Daemon]]


@pytest.mark.every_server
def test_two_daemons_together_keep_it_in_each_channel_and_lose_a_tenth_at_most(
    two_daemons: Daemons, queue: Queue, runs: Runs
) -> None:
    queue.policy("job", channel_min_interval="0.4 s")
    queue.conn.execute(
        "INSERT INTO messages.channel (topic, channel, min_interval) VALUES ('job', 'quick', '0.3 s'), ('job', 'free', '0')"
    )
    two_daemons({"job": "timed:run"})

    for channel, count in (("a", 7), ("b", 7), ("quick", 9), ("free", 20)):
        queue.publish_many(count, "job", channel=channel, payload={"for": 0.01})

    eventually(lambda: queue.ids() == [], within_s=20)
    for channel, interval in (("a", 0.4), ("b", 0.4), ("quick", 0.3)):
        claimed = runs.claimed_at(channel)
        assert min(b - a for a, b in pairwise(claimed)) >= interval - 2e-6
        # A tenth, and once what it takes to look again.
        assert claimed[-1] - claimed[0] <= (len(claimed) - 1) * interval / 0.9 + 0.1
    free = runs.claimed_at("free")
    assert free[-1] - free[0] < 1


def test_messages_without_a_channel_are_not_held_back(two_daemons: Daemons, queue: Queue, runs: Runs) -> None:
    queue.policy("job", channel_min_interval="1 hour")
    two_daemons({"job": "timed:run"})

    queue.publish_many(3, "job", channel="a", payload={"for": 0})
    queue.publish_many(20, "job", payload={"for": 0})

    eventually(lambda: len(runs.rows()) == 21, within_s=2)
