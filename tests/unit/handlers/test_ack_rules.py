"""The result of an attempt under each acknowledgement policy, without a daemon.

tests/daemon/outcome/test_ack_policy.py has it with one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind
from pgrouse.handlers.ack_rules import AckPolicy, AckRules, RetryStrategy
from pgrouse.handlers.outcome import Defer, Fail, Reject, Retry

Claimed = Callable[..., Message]

ERROR = ValueError("no")


@pytest.mark.parametrize("policy", list(AckPolicy))
@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Reject("r"), SettleKind.REJECT),
        (Fail("f"), SettleKind.FAIL),
        (Retry(), SettleKind.RETRY),
        (Defer(), SettleKind.DEFER),
    ],
)
def test_an_outcome_means_the_same_under_every_policy(
    claimed: Claimed, policy: AckPolicy, outcome: BaseException, kind: SettleKind
) -> None:
    assert AckRules(policy).to_settlement(claimed(), outcome).kind is kind


@pytest.mark.parametrize(
    ("answer", "kind", "after"),
    [(5, SettleKind.RETRY, timedelta(seconds=5)), (None, SettleKind.FAIL, None), ("soon", SettleKind.RETRY, None)],
)
def test_a_strategy_decides_failures_without_a_delay(
    claimed: Claimed, answer: Any, kind: SettleKind, after: timedelta | None
) -> None:
    rules = AckRules(strategy=RetryStrategy("m:f", lambda attempt, elapsed, error: answer))

    for failure in (ERROR, Retry()):
        ended = rules.to_settlement(claimed(max_attempts=None), failure)
        assert (ended.kind, ended.after) == (kind, after)
    assert rules.to_settlement(claimed(max_attempts=None), Retry(timedelta(hours=1))).after == timedelta(hours=1)
    assert rules.to_settlement(claimed(max_attempts=None), None, Retry()).kind is kind
    assert rules.to_failure(claimed(max_attempts=None), ERROR, "died").kind is kind


def test_a_strategy_is_not_asked_after_the_last_attempt(claimed: Claimed) -> None:
    rules = AckRules(strategy=RetryStrategy("m:f", lambda attempt, elapsed, error: 1 / 0))

    assert rules.to_settlement(claimed(attempt=3, max_attempts=3), ERROR).warnings == ()
    assert rules.to_settlement(claimed(attempt=2, max_attempts=3), ERROR).warnings != ()
    assert rules.to_settlement(claimed(attempt=99, max_attempts=None), ERROR).warnings != ()
