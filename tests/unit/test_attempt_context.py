"""The context of an attempt: each has decimal settings of its own, those of the start."""

from __future__ import annotations

import decimal
from contextvars import ContextVar, copy_context

import pytest

from pgrouse.handlers.attempt_context import CleanContext

left: ContextVar[str] = ContextVar("left", default="nothing")


def use() -> tuple[str, int, bool]:
    """What an attempt sees; it changes all of it."""
    settings = decimal.getcontext()
    seen = left.get(), settings.prec, settings.flags[decimal.Inexact]
    settings.prec = 5
    left.set("attempt")
    decimal.Decimal(1) / 3  # sets the flag of an inexact result
    return seen


@pytest.mark.parametrize("digits", [None, decimal.DefaultContext.prec, 40])
def test_an_attempt_sees_nothing_of_another(digits: int | None) -> None:
    def start() -> CleanContext:
        left.set("start")
        if digits is not None:
            decimal.setcontext(decimal.Context(prec=digits))
        return CleanContext()

    clean = copy_context().run(start)

    expected = "start", digits or decimal.DefaultContext.prec, False
    assert [clean.copy().run(use) for _ in range(3)] == [expected] * 3
