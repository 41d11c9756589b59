"""A retry strategy of the user: a function that decides whether there is another attempt, and when."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]

HANDLERS = {
    "async": {"handler": "rules:end"},
    "thread": {"handler": "rules:end_in_thread"},
    "process": {"handler": "rules:end_in_process", "isolation": "process", "concurrency": 1},
}
RETRIED = """
  SELECT extract(epoch FROM available_at - clock_timestamp())::float8 AS waits_s
  FROM messages.message WHERE id = %s AND claim_id IS NULL AND attempts = 1"""
everywhere = pytest.mark.parametrize("where", list(HANDLERS))


@pytest.fixture
def run(start: Start, queue: Queue) -> Callable[..., Daemon]:
    """`run("async", "timedelta(0)")` starts a daemon whose strategy returns that."""

    def run(where: str, strategy: str, **more: str) -> Daemon:
        queue.policy("job", max_attempts=4, backoff={"kind": "constant", "base": "1 hour"})
        daemon = start({"job": {**HANDLERS[where], "retry_strategy": "rules:from_file", **more}})
        (daemon.folder / "strategy").write_text(strategy)
        return daemon

    return run


@everywhere
def test_the_strategy_sets_the_start_of_each_attempt_until_they_are_used_up(
    run: Callable[..., Daemon], queue: Queue, journal: Journal, where: str
) -> None:
    run(where, "timedelta(milliseconds=100 * attempt)")
    published = queue.publish("job", payload={"then": "raise"})

    ended = eventually(lambda: queue.archived(published))

    assert (ended.result, ended.attempts) == ("failed", 4)
    starts = [entry["at"] for entry in journal.entries("start", published)]
    waits = [later - sooner for sooner, later in pairwise(starts)]
    assert all(wait >= 0.1 * nth for nth, wait in enumerate(waits, 1))
    assert starts[-1] - starts[0] < 600, "the topic's backoff would have waited for hours"


def test_the_strategy_gets_the_attempt_the_time_since_the_first_and_the_error(
    run: Callable[..., Daemon], queue: Queue, journal: Journal
) -> None:
    run("async", "0.2")
    published = queue.publish("job", payload={"then": "raise"})

    eventually(lambda: queue.archived(published))

    asked = journal.entries("asked")
    assert [entry["attempt"] for entry in asked] == [1, 2, 3], "after the last attempt nothing is left to say"
    assert {entry["error"] for entry in asked} == {"ZeroDivisionError"}
    assert asked[0]["elapsed"] == 0
    assert 0.2 <= asked[1]["elapsed"] < asked[2]["elapsed"] < 600


@everywhere
def test_none_gives_up_whatever_attempts_remain(run: Callable[..., Daemon], queue: Queue, where: str) -> None:
    run(where, "None")
    published = queue.publish("job", payload={"then": "raise"})

    ended = eventually(lambda: queue.archived(published))

    assert (ended.result, ended.attempts) == ("failed", 1)
    assert ended.error.rstrip().endswith("ZeroDivisionError: division by zero")


def test_a_delay_of_the_handler_overrides_the_strategy(
    run: Callable[..., Daemon], queue: Queue, journal: Journal
) -> None:
    run("async", "None")
    published = queue.publish("job", payload={"then": "raise Retry"})

    assert eventually(lambda: queue.archived(published)).attempts == 4
    assert journal.entries("asked") == []


def test_a_retry_without_a_delay_asks_the_strategy_even_if_exceptions_reject(
    run: Callable[..., Daemon], queue: Queue, journal: Journal
) -> None:
    run("async", "None", ack_policy="reject_on_error")
    rejected = queue.publish("job", payload={"then": "raise"})

    assert eventually(lambda: queue.archived(rejected)).result == "rejected"
    assert journal.entries("asked") == []


@pytest.mark.parametrize(
    ("where", "strategy", "reason"),
    [
        ("async", "1 / 0", "rules:from_file raised ZeroDivisionError: division by zero"),
        ("thread", "exit()", "rules:from_file raised SystemExit"),
        (
            "process",
            "'soon'",
            "rules:from_file returned 'soon': expected a timedelta, a number of seconds, a text like \"5s\", "
            "or None to give up",
        ),
    ],
)
def test_a_strategy_that_fails_is_logged_and_the_topics_backoff_applies(
    run: Callable[..., Daemon], queue: Queue, where: str, strategy: str, reason: str
) -> None:
    daemon = run(where, strategy)
    published = queue.publish("job", payload={"then": "raise"})

    event = daemon.event("attempt.retry_strategy_failed", message_id=published)
    assert event["level"] == "error"
    assert event["reason"].startswith(reason)
    (retried,) = eventually(lambda: queue.rows(RETRIED, [published]))
    assert 3000 < retried.waits_s <= 3600


@pytest.mark.long
def test_a_child_that_dies_asks_the_strategy(run: Callable[..., Daemon], queue: Queue, journal: Journal) -> None:
    run("process", "None")
    published = queue.publish("job", payload={"then": "die"})

    ended = eventually(lambda: queue.archived(published))

    assert (ended.result, ended.attempts) == ("failed", 1)
    assert journal.entry("asked")["error"] == "ChildDied"


def test_the_topics_max_total_limits_a_strategy(run: Callable[..., Daemon], queue: Queue) -> None:
    run("async", "3600")
    queue.policy("job", backoff={"kind": "none", "max_total": "10 minutes"})
    published = queue.publish("job", payload={"then": "raise"})

    assert eventually(lambda: queue.archived(published)).attempts == 1
