"""What an attempt means under each acknowledgement policy, without a daemon. tests/daemon/test_ack_policy.py has it with one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pgrouse.handlers.ack_rules import AckPolicy, Rules
from pgrouse.client.message import Message
from pgrouse.handlers.outcome import Acked, Defer, Fail, Kind, Reject, Retry
from pgrouse.handlers.retry_strategy import Strategy

Claimed = Callable[..., Message]

ERROR = ValueError("no")


@pytest.mark.parametrize(
    ("policy", "raised", "silent"),
    [
        (AckPolicy.ACK, Kind.COMPLETE, Kind.COMPLETE),
        (AckPolicy.ACK_FIRST, Kind.RETRY, Kind.COMPLETE),  # what is settled is settled before; this is only logged
        (AckPolicy.REJECT_ON_ERROR, Kind.REJECT, Kind.COMPLETE),
        (AckPolicy.NACK_ON_ERROR, Kind.RETRY, Kind.COMPLETE),
        (AckPolicy.MANUAL, Kind.REJECT, Kind.REJECT),
    ],
)
def test_an_exception_and_silence(claimed: Claimed, policy: AckPolicy, raised: Kind, silent: Kind) -> None:
    rules = Rules(policy)

    assert rules.ended(claimed(), ERROR).kind is raised
    assert rules.ended(claimed(), None).kind is silent


@pytest.mark.parametrize("policy", list(AckPolicy))
@pytest.mark.parametrize(
    ("said", "kind"), [(Reject("r"), Kind.REJECT), (Fail("f"), Kind.FAIL), (Retry(), Kind.RETRY), (Defer(), Kind.DEFER)]
)
def test_outcomes_mean_the_same_under_every_policy(
    claimed: Claimed, policy: AckPolicy, said: BaseException, kind: Kind
) -> None:
    assert Rules(policy).ended(claimed(), said).kind is kind


@pytest.mark.parametrize("policy", list(AckPolicy))
@pytest.mark.parametrize("said", [None, "value", ERROR, Reject("r"), Retry(), Defer()])
@pytest.mark.parametrize(
    ("action", "kind"), [(Acked(), Kind.COMPLETE), (Retry(), Kind.RETRY), (Reject("r"), Kind.REJECT)]
)
def test_an_action_wins_over_everything_that_comes_after_it(
    claimed: Claimed, policy: AckPolicy, said: Any, action: Any, kind: Kind
) -> None:
    ended = Rules(policy).ended(claimed(), said, action)

    assert ended.kind is kind
    assert bool(ended.remarks) is isinstance(said, BaseException), "what was ignored is logged"


@pytest.mark.parametrize(
    ("answer", "kind", "after"),
    [(5, Kind.RETRY, timedelta(seconds=5)), (None, Kind.FAIL, None), ("soon", Kind.RETRY, None)],
)
def test_a_strategy_decides_of_failures_that_name_no_time(
    claimed: Claimed, answer: Any, kind: Kind, after: timedelta | None
) -> None:
    rules = Rules(strategy=Strategy("m:f", lambda attempt, elapsed, error: answer))

    for failure in (ERROR, Retry()):
        ended = rules.ended(claimed(max_attempts=None), failure)
        assert (ended.kind, ended.after) == (kind, after)
    assert rules.ended(claimed(max_attempts=None), Retry(timedelta(hours=1))).after == timedelta(hours=1)
    assert rules.ended(claimed(max_attempts=None), None, Retry()).kind is kind
    assert rules.failed(claimed(max_attempts=None), ERROR, "died").kind is kind


def test_after_the_last_attempt_a_strategy_is_not_asked(claimed: Claimed) -> None:
    rules = Rules(strategy=Strategy("m:f", lambda attempt, elapsed, error: 1 / 0))

    assert rules.ended(claimed(attempt=3, max_attempts=3), ERROR).remarks == ()
    assert rules.ended(claimed(attempt=2, max_attempts=3), ERROR).remarks != ()
    assert rules.ended(claimed(attempt=99, max_attempts=None), ERROR).remarks != ()
