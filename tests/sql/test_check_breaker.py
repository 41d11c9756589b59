"""messages.check_breaker: which breaker policies are valid."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.queue import Queue


def check(queue: Queue, policy: Any) -> Any:
    return queue.row("SELECT * FROM messages.check_breaker(%s)", [Jsonb(policy)])


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"failure_rate": 1},
        {"failure_rate": 0.01, "min_attempts": 1, "window": "1 day", "pause": "1s", "probes": 1000},
    ],
)
def test_every_documented_breaker_is_valid(queue: Queue, policy: dict[str, Any]) -> None:
    assert check(queue, policy) == (None, None)


def test_no_breaker_is_valid(queue: Queue) -> None:
    assert queue.row("SELECT * FROM messages.check_breaker(NULL)") == (None, None)


@pytest.mark.parametrize(
    ("policy", "problem", "fix"),
    [
        ([1], "[1] is not an object", 'use {"failure_rate": 0.5'),
        ({"rate": 1}, "rate is 1", "use failure_rate, min_attempts, window, pause, probes"),
        ({"failure_rate": 0}, "failure_rate is 0", "use a number above 0, up to 1"),
        ({"failure_rate": 1.5}, "failure_rate is 1.5", "use a number above 0, up to 1"),
        ({"failure_rate": "half"}, 'failure_rate is "half"', "use a number above 0, up to 1"),
        ({"failure_rate": None}, "failure_rate is null", "use a number above 0, up to 1"),
        ({"failure_rate": "NaN"}, 'failure_rate is "NaN"', "use a number above 0, up to 1"),
        ({"min_attempts": 0}, "min_attempts is 0", "use a whole number from 1 to 1000000"),
        ({"min_attempts": 99999999999}, "min_attempts is 99999999999", "use a whole number from 1 to 1000000"),
        ({"probes": 2.5}, "probes is 2.5", "use a whole number from 1 to 1000"),
        ({"window": "0s"}, 'window is "0s"', "use a time from 1 s to 1 day"),
        ({"window": "soon"}, 'window is "soon"', "use a time from 1 s to 1 day"),
        ({"pause": "2 days"}, 'pause is "2 days"', "use a time from 1 s to 1 day"),
    ],
)
def test_an_invalid_breaker_is_reported_with_the_fix(queue: Queue, policy: Any, problem: str, fix: str) -> None:
    found = check(queue, policy)

    assert found.problem == problem
    assert fix in found.hint


def test_an_invalid_breaker_is_refused_when_it_is_written(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="breaker of topic t: pause is") as caught:
        queue.policy(breaker={"pause": "-1s"})

    assert "use a time from 1 s to 1 day" in (caught.value.diag.message_hint or "")
