"""messages.check_backoff: which backoff policies are valid."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.sql.queue import Queue


def check(queue: Queue, policy: Any) -> Any:
    return queue.row("SELECT * FROM messages.check_backoff(%s)", [Jsonb(policy)])


@pytest.mark.parametrize(
    "policy",
    [
        {"kind": "none"},
        {"kind": "constant", "base": "5s"},
        {"kind": "constant", "base": 5},
        {"kind": "linear", "base": "1 minute", "step": "30 s", "cap": "1 hour", "jitter": 0.25},
        {"kind": "exponential", "base": "1s", "factor": 1.5, "cap": "10m", "jitter": "full", "max_total": "1 day"},
        {"kind": "exponential", "jitter": "1.0"},
        {"kind": "exponential", "cap": None},
    ],
)
def test_every_documented_backoff_is_valid(queue: Queue, policy: dict[str, Any]) -> None:
    assert check(queue, policy) == (None, None)


def test_null_is_valid_and_means_the_default(queue: Queue) -> None:
    assert queue.row("SELECT * FROM messages.check_backoff(NULL)") == (None, None)


@pytest.mark.parametrize(
    ("policy", "problem", "fix"),
    [
        ({"kind": "exponential", "bsae": "1s"}, 'unknown key "bsae"', "known keys: kind, base"),
        ({"base": "1s"}, "kind is missing", "use none, constant, linear or exponential"),
        ({"kind": None}, "kind is missing", "use none, constant, linear or exponential"),
        ({"kind": "fibonacci"}, 'kind is "fibonacci"', "use none, constant, linear or exponential"),
        ({"kind": "constant", "jitter": "some"}, 'jitter is "some"', 'use "full" or a number from 0 to 1'),
        ({"kind": "constant", "jitter": 1.5}, 'jitter is "1.5"', 'use "full" or a number from 0 to 1'),
        ({"kind": "constant", "jitter": -0.5}, 'jitter is "-0.5"', 'use "full" or a number from 0 to 1'),
        ({"kind": "constant", "jitter": "NaN"}, 'jitter is "NaN"', 'use "full" or a number from 0 to 1'),
        ({"kind": "constant", "jitter": True}, 'jitter is "true"', 'use "full" or a number from 0 to 1'),
        ({"kind": "constant", "base": "soon"}, 'base is "soon"', "use an interval from 0 to 3650 days"),
        ({"kind": "constant", "base": "-1s"}, 'base is "-1s"', "use an interval from 0 to 3650 days"),
        ({"kind": "constant", "base": "11 years"}, 'base is "11 years"', "use an interval from 0 to 3650 days"),
        ({"kind": "constant", "base": "infinity"}, 'base is "infinity"', "use an interval from 0 to 3650 days"),
        ({"kind": "constant", "base": "1e30 s"}, 'base is "1e30 s"', "use an interval from 0 to 3650 days"),
        ({"kind": "constant", "base": {}}, 'base is "{}"', "use an interval from 0 to 3650 days"),
        ({"kind": "linear", "step": "-1s"}, 'step is "-1s"', "use an interval from 0 to 3650 days"),
        ({"kind": "constant", "cap": "-1s"}, 'cap is "-1s"', "use an interval from 0 to 3650 days"),
        ({"kind": "constant", "max_total": "-1s"}, 'max_total is "-1s"', "use an interval from 0 to 3650 days"),
        (
            {"kind": "constant", "max_total": "300000 years"},
            'max_total is "300000 years"',
            "use an interval from 0 to 3650 days",
        ),
        ({"kind": "exponential", "factor": 0.5}, 'factor is "0.5"', "use a number from 1 to 1000"),
        ({"kind": "exponential", "factor": 1001}, 'factor is "1001"', "use a number from 1 to 1000"),
        ({"kind": "exponential", "factor": "NaN"}, 'factor is "NaN"', "use a number from 1 to 1000"),
        ({"kind": "exponential", "factor": "two"}, 'factor is "two"', "use a number from 1 to 1000"),
        ([], "it is of type array", "use an object"),
        ("exponential", "it is of type string", "use an object"),
        (None, "it is of type null", "use an object"),
    ],
)
def test_an_invalid_backoff_is_reported_setting_by_setting_with_the_fix(
    queue: Queue, policy: Any, problem: str, fix: str
) -> None:
    found = check(queue, policy)

    assert found.problem == problem
    assert found.hint.startswith(fix)
