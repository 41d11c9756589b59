"""A retry strategy: its valid return values, and which functions are valid."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pgrouse.client.message import Message
from pgrouse.handlers.ack_rules import RetryStrategyFailed, to_strategy

Claimed = Callable[..., Message]


def answer(claimed: Claimed, value: Any) -> timedelta | None:
    return to_strategy("m:f", lambda attempt, elapsed, error: value).next_delay(claimed(), OSError())


@pytest.mark.parametrize(
    ("returned", "meant"),
    [
        (timedelta(minutes=1), timedelta(minutes=1)),
        (5, timedelta(seconds=5)),
        ("1m30s", timedelta(seconds=90)),
        (0.25, timedelta(milliseconds=250)),
        (0, timedelta(0)),
        (None, None),
    ],
)
def test_a_strategy_returns_a_delay_or_none(claimed: Claimed, returned: Any, meant: timedelta | None) -> None:
    assert answer(claimed, returned) == meant


@pytest.mark.parametrize(
    ("rubbish", "shown"),
    [
        ("soon", "'soon'"),
        (-1, "-1"),
        (-0.5, "-0.5"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (1e300, "1e+300"),
        (10**400, "1000"),
        (True, "True"),
        (timedelta(seconds=-1), "datetime.timedelta"),
        ([1], "a list"),
        (object(), "a object"),
    ],
)
def test_an_invalid_delay_is_reported_with_its_value(claimed: Claimed, rubbish: Any, shown: str) -> None:
    with pytest.raises(RetryStrategyFailed) as caught:
        answer(claimed, rubbish)

    assert str(caught.value).startswith(f"m:f returned {shown}")
    assert str(caught.value).endswith(
        ': expected a timedelta, a number of seconds, a text like "5s", or None to give up'
    )
