"""The transaction of a step (`ctx.step(transaction=True)`) while its function runs.

The function's calls of its context go into it.

A call finds it through a context variable: another step at the same time, in another task of the same handler, has
another transaction, or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class StepTransaction:
    """An open transaction of a step.

    Args:
        owner: the steps of one message in one attempt.

    Attributes:
        connection: its connection.
        names: the nested steps, which are kept if the transaction commits.
        is_open: False after the end of its step; a task that the step left running still finds this.
    """

    __slots__ = ("connection", "is_open", "names", "owner")

    def __init__(self, owner: object, connection: Any) -> None:
        self.owner, self.connection = owner, connection
        self.names: set[str] = set()
        self.is_open = True


_innermost: ContextVar[StepTransaction | None] = ContextVar("pgrouse_step_transaction", default=None)


@contextmanager
def opened(owner: object, connection: Any) -> Iterator[StepTransaction]:
    """Make `find` return this transaction while the block runs."""
    before, transaction = _innermost.get(), StepTransaction(owner, connection)
    _innermost.set(transaction)
    try:
        yield transaction
    finally:
        transaction.is_open = False
        # Do not reset with a token, which other contexts refuse: a coroutine that is closed early may end in any
        # context.
        _innermost.set(before)


def find(owner: object) -> StepTransaction | None:
    """Return the transaction in which the calling code runs; None if it runs in none of this owner."""
    found = _innermost.get()
    return found if found is not None and found.owner is owner and found.is_open else None
