"""The context of an attempt, in the sense of contextvars: the next attempt does not see what a handler sets there.

Each attempt has a copy of the context in which its worker, or its child process, was started. It contains the values
that modules set when they were imported. Other variables belong to the whole process, or to the thread, and cannot be
separated.
"""

from __future__ import annotations

import contextvars
import decimal
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# The variable that holds the context of `decimal`, an object that is changed in place: getcontext().prec = 10.
DECIMAL_CONTEXT = "decimal_context"


class CleanContext:
    """The context at the moment when this object was created, to be copied for each attempt.

    Attributes:
        copy: returns a copy, with its own decimal context.
    """

    def __init__(self) -> None:
        context = contextvars.copy_context()
        of_names = {variable.name: value for variable, value in context.items()}
        own: decimal.Context | None = of_names.get(DECIMAL_CONTEXT)
        self.copy: Callable[[], contextvars.Context]
        if own is None or repr(own) == repr(decimal.Context()):
            # The first use in an attempt creates the same one.
            self.copy = _without_decimal(context).copy
        else:
            self.copy = partial(_copy_with_decimal, context, own)


def _without_decimal(context: contextvars.Context) -> contextvars.Context:
    rest = contextvars.Context()
    for variable, value in context.items():
        if variable.name != DECIMAL_CONTEXT:
            rest.run(variable.set, value)
    return rest


def _copy_with_decimal(context: contextvars.Context, own: decimal.Context) -> contextvars.Context:
    copied = context.copy()
    copied.run(decimal.setcontext, own.copy())
    return copied


class InContext(Generic[T]):
    """Runs a coroutine in a context, in the task that awaits this. Await it once.

    A task has one context for its whole life; here each step of the coroutine enters and leaves another context. Tasks
    and callbacks that the coroutine creates get a copy of that context, as usual.
    """

    __slots__ = ("_context", "_coroutine")

    def __init__(self, context: contextvars.Context, coroutine: Coroutine[Any, Any, T]) -> None:
        self._context, self._coroutine = context, coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        run, coroutine = self._context.run, self._coroutine
        try:
            awaited = run(coroutine.send, None)
            while True:
                try:
                    yield awaited
                except GeneratorExit:
                    run(coroutine.close)
                    raise
                except BaseException as error:  # noqa: BLE001 - any exception of the task belongs to the coroutine
                    awaited = run(coroutine.throw, error)
                else:
                    awaited = run(coroutine.send, None)
        except StopIteration as end:
            result: T = end.value
            return result
