"""dequeue_rate and burst: how many messages of a topic start per second, across all daemons."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.process import Daemon
from tests.daemon.runs import Runs
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Daemons = Callable[..., list[Daemon]]


def most_ahead(moments: list[float], rate: float) -> float:
    """Return the least burst with which these times keep to a rate.

    No window of t seconds has more than rate * t + burst.
    """
    level, most, last = 0.0, 0.0, moments[0]
    for at in moments:
        level = max(0.0, level - (at - last) * rate) + 1
        most, last = max(most, level), at
    return most


def rate_of_the_best_third(moments: list[float]) -> float:
    """Return the rate per second, without pauses of the machine."""
    third = len(moments) // 3
    return third / min(moments[n + third] - moments[n] for n in range(len(moments) - third))


@pytest.mark.every_server
@pytest.mark.parametrize(("rate", "burst", "count"), [(30, 6, 66), (2, 1, 7)])
def test_two_daemons_never_exceed_the_rate_and_reach_nine_tenths_of_it(
    two_daemons: Daemons, queue: Queue, runs: Runs, rate: int, burst: int, count: int
) -> None:
    queue.policy("job", dequeue_rate=rate, burst=burst)
    two_daemons({"job": "timed:run"}, concurrency=100)

    queue.publish_many(count, "job", payload={"for": 0.05})

    eventually(lambda: queue.ids() == [], within_s=60)
    claimed, started = runs.claimed_at(), [run.started for run in runs.rows()]
    assert len(claimed) == len(started) == count
    assert most_ahead(claimed, rate) <= burst + 1e-3
    # A handler starts a little after its claim; by this much two starts may be closer.
    late = max(start - claim for start, claim in zip(started, claimed, strict=True))
    assert most_ahead(started, rate) <= burst + rate * late + 1e-3
    # The burst saved before the first claim does not count as rate.
    assert rate_of_the_best_third(started[burst:]) >= 0.9 * rate


def test_a_slow_topic_delays_no_other(two_daemons: Daemons, queue: Queue, runs: Runs) -> None:
    queue.policy("job", dequeue_rate=0.01, burst=1)
    two_daemons({"job": "timed:run", "other": "timed:run"})

    queue.publish_many(5, "job", payload={"for": 0})
    queue.publish_many(50, "other", payload={"for": 0})

    eventually(lambda: sum(run.topic == "other" for run in runs.rows()) == 50)
    assert sum(run.topic == "job" for run in runs.rows()) <= 1
