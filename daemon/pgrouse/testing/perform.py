"""Call one handler, without a queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from pgrouse.client.calls.event import SavedEvent
from pgrouse.client.message import Message
from pgrouse.errors import EventTimeout
from pgrouse.handlers.call import HandlerCall, to_call
from pgrouse.handlers.event_loop import is_on_event_loop
from pgrouse.handlers.handler import Handler
from pgrouse.handlers.outcome import EventWait, Outcome
from pgrouse.testing.attempt import Attempt, attempt
from pgrouse.testing.handler_call import completed_by, handler_of, run_handler, run_handler_async
from pgrouse.testing.runtime import AnyConnection, TestRuntime
from pgrouse.values import jsonb

if TYPE_CHECKING:
    from pgrouse.testing.attempt import AttemptHere


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
    events: Iterable[tuple[str, Any]] = (),
) -> AttemptHere:
    """Call a handler as a daemon does, with a context, and return the `Attempt`; await it where an event loop runs.

    The payload is converted to JSON and back, and validated against the handler's annotation. Exceptions of the handler
    are raised here, except outcomes like `Reject`.

    Args:
        function: the handler.
        payload: the payload of the message.
        topic: the topic of the message.
        body: bytes instead of a payload.
        headers: the headers of the message.
        state: the checkpoint that an earlier attempt left.
        key: the key of the message.
        channel: the channel of the message.
        number: the number of the attempt.
        runs: how many times a handler started on the message, this time included; by default the number of the attempt.
        max_attempts: how many attempts are allowed.
        conn: the connection on which `ctx.publish()` publishes; one of psycopg, of the handler's kind. The message is
            not in the queue, so `ctx.transaction()` and `ctx.step()` need `drain`.
        resources: the value of `ctx.resources`.
        events: what was signalled, each with its name and payload; `EventTimeout` as the payload is a time-out. A wait
            for another event ends the attempt with the outcome `wait_for_event`.

    Raises:
        InvalidMessage: the payload cannot be published.
        Exception: an exception of the handler.
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
    call = to_call(
        handler, [message], TestRuntime(conn, resources=resources, given_events=[_saved(*each) for each in events])
    )
    done = _on_the_loop(handler, call) if is_on_event_loop() else _attempt(call, run_handler(call))
    return cast("AttemptHere", done)


async def _on_the_loop(handler: Handler, call: HandlerCall) -> Attempt:
    return _attempt(call, await run_handler_async(handler, call))


def _attempt(call: HandlerCall, returned: object) -> Attempt:
    try:
        if isinstance(returned, BaseException) and not isinstance(returned, Outcome | EventWait):
            raise returned
        return attempt([*call.to_settlements(returned), *completed_by(call)][0])
    finally:
        del returned  # an exception in it has this frame in its traceback


def _saved(name: str, payload: Any) -> SavedEvent:
    timed_out = payload is EventTimeout
    return SavedEvent(name, None if timed_out else jsonb.encode(payload), timed_out)
