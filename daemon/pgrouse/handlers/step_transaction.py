"""The transaction of a step (`ctx.step(transaction=True)`) while its function runs: what that calls of its context goes into it.

A call finds it by a context variable: a step beside this one, in another task of the same handler, has another transaction, or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class StepTransaction:
    """One that is open.

    Args:
        owner: the steps of one message in one attempt.

    Attributes:
        connection: its connection.
        names: the steps inside of its step, which are kept if it is committed.
        is_open: False behind the end of its step; a task that the step left running still finds this.
    """

    __slots__ = ("connection", "is_open", "names", "owner")

    def __init__(self, owner: object, connection: Any) -> None:
        self.owner, self.connection = owner, connection
        self.names: set[str] = set()
        self.is_open = True


_innermost: ContextVar[StepTransaction | None] = ContextVar("pgrouse_step_transaction", default=None)


@contextmanager
def opened(owner: object, connection: Any) -> Iterator[StepTransaction]:
    """While this block runs `find` returns it."""
    before, transaction = _innermost.get(), StepTransaction(owner, connection)
    _innermost.set(transaction)
    try:
        yield transaction
    finally:
        transaction.is_open = False
        # Not by a token, which another context refuses: a coroutine that is given up ends in any.
        _innermost.set(before)


def find(owner: object) -> StepTransaction | None:
    """Return the one in which the calling code runs; None if it runs in none of this owner."""
    found = _innermost.get()
    return found if found is not None and found.owner is owner and found.is_open else None
