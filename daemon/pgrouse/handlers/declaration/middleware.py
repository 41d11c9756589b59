"""Middleware: a user's functions around every call of a handler.

They wrap the handler's function when it is loaded. A handler without middleware is called directly.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pgrouse.handlers.batch.batch_context import AsyncBatchContext, BatchContext
from pgrouse.handlers.context import AsyncContext, Context

AnyContext = Context | AsyncContext | BatchContext | AsyncBatchContext
# Takes the payload (or the list of a batch) and the context, and returns the result, or an awaitable of it.
Layer = Callable[[Any, Any], Any]


class NextCall:
    """The call with which a middleware continues: it calls the rest of the middleware, and then the handler.

    Attributes:
        result: what the rest has returned; None before that.
    """

    __slots__ = ("_context", "_inner", "_payload", "_was_called", "result")

    def __init__(self, inner: Layer, payload: Any, context: AnyContext) -> None:
        self._inner, self._payload, self._context = inner, payload, context
        self._was_called = False
        self.result: Any = None

    def __call__(self) -> Any:
        """Call the rest and return its result.

        Raises:
            RuntimeError: it was called before.
        """
        self._check_first()
        self.result = self._inner(self._payload, self._context)
        return self.result

    def _check_first(self) -> None:
        if self._was_called:
            raise RuntimeError("a middleware has called call_next() twice: to try the message again, raise Retry")
        self._was_called = True


class AsyncNextCall(NextCall):
    """The same for async handlers: its result must be awaited."""

    __slots__ = ("_coroutine", "_is_awaited")

    def __init__(self, inner: Layer, payload: Any, context: AnyContext) -> None:
        super().__init__(inner, payload, context)
        self._is_awaited = False
        self._coroutine: Coroutine[Any, Any, Any] | None = None

    def __call__(self) -> Any:
        """Return an awaitable that calls the rest.

        Raises:
            RuntimeError: it was called before.
        """
        self._check_first()
        self._coroutine = self._call()
        return self._coroutine

    async def _call(self) -> Any:
        self._is_awaited = True
        self.result = await self._inner(self._payload, self._context)
        return self.result

    def check_awaited(self) -> None:
        """Check that the call was also awaited.

        Raises:
            RuntimeError: it was not, so the handler has not run.
        """
        if self._coroutine is not None and not self._is_awaited:
            self._coroutine.close()
            raise RuntimeError("a middleware has not awaited call_next(), so that the handler has not run")


def with_middleware(
    function: Callable[..., Any], arguments: int, middleware: Sequence[Callable[..., Any]], *, is_async: bool
) -> Layer:
    """Return a handler's function with middleware around it; it takes payload and context.

    Args:
        function: the handler's function.
        arguments: how many of payload and context it takes.
        middleware: functions of the handler's kind, the outermost first.
        is_async: whether the handler is async.
    """
    layer: Layer = _called_with(function, arguments)
    for each in reversed(middleware):
        layer = _async_layer(each, layer) if is_async else _layer(each, layer)
    return layer


def _called_with(function: Callable[..., Any], arguments: int) -> Layer:
    return lambda payload, context: function(*(payload, context)[:arguments])


def _layer(middleware: Callable[..., Any], inner: Layer) -> Layer:
    def call(payload: Any, context: AnyContext) -> Any:
        call_next = NextCall(inner, payload, context)
        returned = middleware(context, call_next)
        return call_next.result if returned is None else returned

    return call


def _async_layer(middleware: Callable[..., Any], inner: Layer) -> Layer:
    async def call(payload: Any, context: AnyContext) -> Any:
        call_next = AsyncNextCall(inner, payload, context)
        returned = await middleware(context, call_next)
        call_next.check_awaited()
        return call_next.result if returned is None else returned

    return call
