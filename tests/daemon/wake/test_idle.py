"""An idle daemon costs almost nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.process import Daemon, now
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]
pytestmark = pytest.mark.executed


@pytest.mark.long
@pytest.mark.slow
def test_an_idle_daemon_uses_less_than_one_percent_of_a_core_and_80_megabytes(start: Start, queue: Queue) -> None:
    daemon = start({"job": "work:echo"}, poll_interval="5s", maintenance_interval="5s", degraded_poll_interval="1s")
    queue.publish_many(100, "job")
    eventually(lambda: queue.ids() == [])
    eventually(lambda: queue.value("SELECT status ->> 'planner' FROM messages.worker") == "asleep")

    began, used = now(), daemon.cpu_s()
    eventually(lambda: now() - began > 10, within_s=60, every_s=1)

    assert (daemon.cpu_s() - used) / (now() - began) < 0.01
    assert daemon.rss_mb() < 80
