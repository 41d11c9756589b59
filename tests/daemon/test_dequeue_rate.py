"""dequeue_rate and burst: so many messages of a topic begin per second, over all daemons."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.process import Daemon
from tests.daemon.runs import Runs
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Daemons = Callable[..., list[Daemon]]


def most_ahead(moments: list[float], rate: float) -> float:
    """Return the least burst with which these moments keep to a rate: in no window of t seconds lie more than rate * t + burst."""
    level, most, last = 0.0, 0.0, moments[0]
    for at in moments:
        level = max(0.0, level - (at - last) * rate) + 1
        most, last = max(most, level), at
    return most


def rate_of_the_best_third(moments: list[float]) -> float:
    """Return how many per second there were while the machine did not stand still."""
    third = len(moments) // 3
    return third / min(moments[n + third] - moments[n] for n in range(len(moments) - third))


@pytest.mark.every_server
@pytest.mark.parametrize(("rate", "burst", "count"), [(60, 6, 180), (3, 1, 16)])
def test_two_daemons_together_never_exceed_it_and_reach_nine_tenths_of_it(
    two_daemons: Daemons, queue: Queue, runs: Runs, rate: int, burst: int, count: int
) -> None:
    queue.policy("job", dequeue_rate=rate, burst=burst)
    two_daemons({"job": "timed:run"}, concurrency=100)

    queue.publish_many(count, "job", payload={"for": 0.05})

    eventually(lambda: queue.ids() == [], within_s=60)
    claimed, started = runs.claimed_at(), [run.started for run in runs.rows()]
    assert len(claimed) == len(started) == count
    assert most_ahead(claimed, rate) <= burst + 1e-3
    # A handler begins a little after its claim; by no more than that two may come closer.
    late = max(start - claim for start, claim in zip(started, claimed, strict=True))
    assert most_ahead(started, rate) <= burst + rate * late + 1e-3
    # What had gathered before the first claim is no rate.
    assert rate_of_the_best_third(started[burst:]) >= 0.9 * rate


def test_a_slow_topic_holds_no_other_up(two_daemons: Daemons, queue: Queue, runs: Runs) -> None:
    queue.policy("job", dequeue_rate=0.01, burst=1)
    two_daemons({"job": "timed:run", "other": "timed:run"})

    queue.publish_many(5, "job", payload={"for": 0})
    queue.publish_many(50, "other", payload={"for": 0})

    eventually(lambda: sum(run.topic == "other" for run in runs.rows()) == 50)
    assert sum(run.topic == "job" for run in runs.rows()) <= 1


def test_a_quiet_time_saves_up_the_burst_and_no_more(two_daemons: Daemons, queue: Queue, runs: Runs) -> None:
    # The next one after the burst has its turn in a minute and a half.
    queue.policy("job", dequeue_rate=0.01, burst=4)
    two_daemons({"job": "timed:run", "other": "timed:run"})

    queue.publish_many(6, "job", payload={"for": 0})

    eventually(lambda: len(runs.rows()) == 4)
    queue.publish_many(50, "other", payload={"for": 0})
    eventually(lambda: queue.value("SELECT count(*) FROM messages.message WHERE topic = 'other'") == 0)
    assert sum(run.topic == "job" for run in runs.rows()) == 4
