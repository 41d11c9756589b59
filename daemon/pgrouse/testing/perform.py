"""Call one handler, without a queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pgrouse import jsonb
from pgrouse.client.message import Message
from pgrouse.handlers.call import HandlerCall, to_call
from pgrouse.handlers.event_loop import is_on_event_loop
from pgrouse.handlers.handler import Handler
from pgrouse.handlers.outcome import Outcome
from pgrouse.testing.attempt import Attempt, attempt
from pgrouse.testing.handler_call import completed_by, handler_of, run_handler, run_handler_async
from pgrouse.testing.runtime import AnyConnection, TestRuntime


def perform(
    function: Callable[..., Any],
    payload: Any = None,
    *,
    topic: str = "test",
    body: bytes | None = None,
    headers: Mapping[str, Any] | None = None,
    state: Any = None,
    key: str | None = None,
    channel: str | None = None,
    number: int = 1,
    runs: int | None = None,
    max_attempts: int | None = None,
    conn: AnyConnection | None = None,
    resources: Any = None,
) -> Any:
    """Call a handler as a daemon does, with a context, and return the `Attempt`; await it where an event loop runs.

    The payload becomes JSON and is read again, and is validated as the handler's annotation says. What the handler raises comes out of here,
    but for outcomes as `Reject`.

    Args:
        function: the handler.
        payload: of the message.
        topic: of the message.
        body: bytes instead of a payload.
        headers: of the message.
        state: the checkpoint that an earlier attempt left.
        key: of the message.
        channel: of the message.
        number: of the attempt.
        runs: how many times it was begun, this time included; the number of the attempt unless given.
        max_attempts: how many there may be.
        conn: where `ctx.publish()` publishes; psycopg's, of the handler's kind. There is no message in the queue, so that
            `ctx.transaction()` and `ctx.step()` need `drain`.
        resources: what `ctx.resources` is.

    Raises:
        InvalidMessage: the payload is none that can be published.
        Exception: what the handler raises.
    """
    message = Message(
        id=0,
        claim_id=0,
        topic=topic,
        channel=channel,
        key=key,
        priority=5,
        attempt=number,
        max_attempts=max_attempts,
        payload=None if body is not None else jsonb.encode(payload),
        body=body,
        headers=None if headers is None else jsonb.encode(dict(headers), "headers"),
        state=None if state is None else jsonb.encode(state, "state"),
        lock_duration_s=30.0,
        timeout_s=None,
        waited_s=0.0,
        elapsed_s=0.0,
        runs=number if runs is None else runs,
    )
    handler = handler_of(topic, function)
    call = to_call(handler, [message], TestRuntime(conn, resources=resources))
    return _on_the_loop(handler, call) if is_on_event_loop() else _attempt(call, run_handler(call))


async def _on_the_loop(handler: Handler, call: HandlerCall) -> Attempt:
    return _attempt(call, await run_handler_async(handler, call))


def _attempt(call: HandlerCall, returned: object) -> Attempt:
    try:
        if isinstance(returned, BaseException) and not isinstance(returned, Outcome):
            raise returned
        return attempt([*call.to_settlements(returned), *completed_by(call)][0])
    finally:
        del returned  # if it was raised, its traceback has this frame
