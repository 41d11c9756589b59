"""channel_concurrency: the maximum of running messages of one channel, across all daemons.

A channel may have its own.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.process import Daemon
from tests.daemon.runs import STEPS_OF_A_PAUSE, Runs
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Daemons = Callable[..., list[Daemon]]


@pytest.mark.usefixtures("probe_daemon")
@pytest.mark.every_server
def test_two_daemons_never_exceed_the_limit_and_use_nine_tenths_of_it(
    two_daemons: Daemons, queue: Queue, runs: Runs
) -> None:
    queue.policy("job", channel_concurrency=2)
    queue.conn.execute(
        "INSERT INTO messages.channel (topic, channel, concurrency) VALUES ('job', 'wide', 5), ('job', 'narrow', 1)"
    )
    two_daemons({"job": "timed:run"}, concurrency=7)
    limits = {"a": 2, "b": 2, "wide": 5, "narrow": 1}

    # Three pauses of the narrowest: a single one of the machine is not the usual one.
    for channel, limit in limits.items():
        queue.publish_many(4 * limit, "job", channel=channel, payload={"for": 2.5})

    latency = runs.until_done()
    assert len(runs.pids()) == 2
    assert {channel: runs.most_at_once(channel=channel) for channel in limits} == limits
    for channel, limit in limits.items():
        assert runs.pause(limit, channel) <= max(2.5 / 9, STEPS_OF_A_PAUSE * latency)


@pytest.mark.long
def test_a_full_channel_delays_no_other(two_daemons: Daemons, queue: Queue, runs: Runs) -> None:
    queue.policy("job", channel_concurrency=1)
    two_daemons({"job": "timed:run"}, concurrency=4)
    queue.publish_many(50, "job", channel="full", payload={"for": 60})
    eventually(lambda: len(runs.rows("full")) == 1)

    queue.publish_many(6, "job", channel="quiet", payload={"for": 0.01})

    eventually(lambda: len(runs.rows("quiet")) == 6)
    assert runs.most_at_once(channel="full") == 1
