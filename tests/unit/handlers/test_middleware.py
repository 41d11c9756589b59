"""Middleware: what it sees, what it may change, and the mistakes that would lose a message without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from pgrouse import Context, Defer, Reject, Retry
from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.handlers.call import to_call
from pgrouse.handlers.declaration.middleware import with_middleware
from pgrouse.handlers.handler import BatchOptions, ExecutionMode
from pgrouse.testing.handler_call import handler_of, run_handler
from pgrouse.testing.runtime import TestRuntime

Claimed = Callable[..., Message]
KINDS = ["async", "sync"]


def settled(function: Callable[..., Any], middleware: list[Callable[..., Any]], *messages: Message) -> list[Settlement]:
    """Call a handler with middleware around it, and return how its messages end."""
    handler = handler_of("job", function)
    is_async = handler.mode is ExecutionMode.ASYNC
    wrapped = with_middleware(function, handler.arguments, middleware, is_async=is_async)
    batch = BatchOptions(10, 0, as_items=False) if len(messages) > 1 else None
    call = to_call(
        replace(handler, function=wrapped, arguments=2, batch_options=batch), list(messages), TestRuntime(None)
    )
    return call.to_settlements(run_handler(call))


def outputs(settlements: list[Settlement]) -> list[str | None]:
    assert {each.kind for each in settlements} == {SettleKind.COMPLETE}, settlements
    return [each.output for each in settlements]


def both(function: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return a generator-based description of a middleware as an async and as a sync one."""

    async def on_the_loop(ctx: Any, call_next: Callable[[], Any]) -> Any:
        steps = function(ctx)
        next(steps)
        try:
            steps.send(await call_next())
        except StopIteration as end:
            return end.value

    def blocking(ctx: Any, call_next: Callable[[], Any]) -> Any:
        steps = function(ctx)
        next(steps)
        try:
            steps.send(call_next())
        except StopIteration as end:
            return end.value

    return {"async": on_the_loop, "sync": blocking}


def echoes(kind: str) -> Callable[..., Any]:
    async def on_the_loop(payload: Any) -> Any:
        await asyncio.sleep(0)
        return payload

    def blocking(payload: Any) -> Any:
        return payload

    return on_the_loop if kind == "async" else blocking


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_is_the_outermost(claimed: Claimed, kind: str) -> None:
    steps: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
        def noted(ctx: Any) -> Any:
            steps.append(f"{name} before")
            yield
            steps.append(f"{name} after")

        return both(noted)[kind]

    settled(echoes(kind), [noting("outer"), noting("inner")], claimed())

    assert steps == ["outer before", "inner before", "inner after", "outer after"]


@pytest.mark.parametrize("kind", KINDS)
def test_it_gets_a_context_even_if_the_handler_takes_none(claimed: Claimed, kind: str) -> None:
    seen: list[Any] = []

    def look(ctx: Any) -> Any:
        seen.append((ctx.id, ctx.topic, ctx.attempt))
        yield

    async def nothing() -> None: ...
    def nothing_at_all() -> None: ...

    message = claimed(attempt=3)
    settled(nothing if kind == "async" else nothing_at_all, [both(look)[kind]], message)

    assert seen == [(message.id, "job", 3)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("returned", "output"), [(None, '"kept"'), ("changed", '"changed"')])
def test_what_it_returns_replaces_the_result_and_none_keeps_it(
    claimed: Claimed, kind: str, returned: Any, output: str
) -> None:
    def change(ctx: Any) -> Any:
        yield
        return returned

    assert outputs(settled(echoes(kind), [both(change)[kind]], claimed(payload='"kept"'))) == [output]


def test_an_outcome_that_a_handler_returns_is_not_lost_if_it_returns_nothing(claimed: Claimed) -> None:
    async def later(payload: Any) -> Any:
        return Defer("1h")

    async def timed(ctx: Any, call_next: Callable[[], Any]) -> None:
        await call_next()

    assert [each.kind for each in settled(later, [timed], claimed())] == [SettleKind.DEFER]


@pytest.mark.parametrize("outcome", [Reject("no"), Retry(), ValueError("broken")])
def test_what_it_raises_ends_the_attempt(claimed: Claimed, outcome: Exception) -> None:
    async def refuse(ctx: Any, call_next: Callable[[], Any]) -> Any:
        await call_next()
        raise outcome

    (ended,) = settled(echoes("async"), [refuse], claimed())

    assert ended.kind is (SettleKind.REJECT if isinstance(outcome, Reject) else SettleKind.RETRY)


def test_an_outcome_that_it_returns_ends_the_attempt_and_the_handler_need_not_run(claimed: Claimed) -> None:
    ran: list[Any] = []

    def refuse(ctx: Any, call_next: Callable[[], Any]) -> Any:
        return Reject("not today")

    (ended,) = settled(ran.append, [refuse], claimed())

    assert (ended.kind, ended.error, ran) == (SettleKind.REJECT, "not today", [])


def test_an_exception_that_it_swallows_is_none(claimed: Claimed) -> None:
    def fail(payload: Any) -> None:
        raise ValueError("broken")

    def swallow(ctx: Any, call_next: Callable[[], Any]) -> None:
        with suppress(ValueError):
            call_next()

    assert outputs(settled(fail, [swallow], claimed())) == [None]


@pytest.mark.parametrize("kind", KINDS)
def test_it_cannot_call_the_handler_twice(claimed: Claimed, kind: str) -> None:
    runs: list[Any] = []

    async def on_the_loop(payload: Any) -> None:
        runs.append(payload)

    async def twice(ctx: Any, call_next: Callable[[], Any]) -> None:
        await call_next()
        await call_next()

    def twice_blocking(ctx: Any, call_next: Callable[[], Any]) -> None:
        call_next()
        call_next()

    function, middleware = (on_the_loop, twice) if kind == "async" else (runs.append, twice_blocking)
    (ended,) = settled(function, [middleware], claimed())

    assert ended.kind is SettleKind.RETRY
    assert "has called call_next() twice" in str(ended.error)
    assert runs == [None]


@pytest.mark.parametrize("returns", [True, False])
def test_a_call_that_is_not_awaited_fails_the_attempt(claimed: Claimed, returns: bool) -> None:
    async def forgets(ctx: Any, call_next: Callable[[], Any]) -> Any:
        coroutine = call_next()
        return coroutine if returns else None

    (ended,) = settled(echoes("async"), [forgets], claimed())

    assert ended.kind is SettleKind.RETRY
    assert "has not awaited call_next()" in str(ended.error)


def test_a_payload_that_does_not_fit_is_rejected_before_it(claimed: Claimed) -> None:
    called: list[Any] = []

    def typed(payload: int) -> None: ...

    def look(ctx: Any, call_next: Callable[[], Any]) -> None:
        called.append(ctx)

    (ended,) = settled(typed, [look], claimed(payload='"no number"'))

    assert (ended.kind, called) == (SettleKind.REJECT, [])


def test_it_is_around_a_batch_once(claimed: Claimed) -> None:
    seen: list[Any] = []

    async def work(payloads):  # type: ignore[no-untyped-def]
        return payloads

    async def look(ctx: Any, call_next: Callable[[], Any]) -> Any:
        seen.append((ctx.topic, await call_next()))

    assert outputs(settled(work, [look], claimed(payload="1"), claimed(payload="2"))) == ["1", "2"]
    assert seen == [("job", [1, 2])]


def test_the_handler_gets_the_same_context(claimed: Claimed) -> None:
    seen: list[Any] = []

    def work(payload: Any, ctx: Context) -> None:
        seen.append(ctx)

    def look(ctx: Any, call_next: Callable[[], Any]) -> Any:
        seen.append(ctx)
        return call_next()

    settled(work, [look], claimed())

    assert seen[0] is seen[1]
