"""Events that messages wait for: signal them, hand out URLs that do it, and read them as a worker."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.calls import event
from pgrouse.client.queries.clock import now
from pgrouse.client.queries.message import topics_of
from pgrouse.client.signal_url import NO_ADDRESS, signal_url
from pgrouse.config import duration
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, run_write, writing
from pgrouse.web.access.security import Publisher, Worker
from pgrouse.web.http.problem import Problem
from pgrouse.web.v1.description.problem_responses import responses
from pgrouse.web.v1.model import (
    DAY,
    Id,
    Json,
    Label,
    PathId,
    RequestModel,
    ResponseModel,
    S,
    Seconds,
    Topic,
    example,
)
from pgrouse.web.v1.response import ApiResponse, raw
from pgrouse.web.v1.route import StrictRoute
from pgrouse.web.v1.work import lock_lost_problem

router = APIRouter(prefix="/v1", tags=["events"], route_class=StrictRoute)

EventName = Annotated[Label, Field(max_length=180)]
Number = Annotated[int, Field(ge=1, le=1000)]


class SignalRequest(RequestModel):
    """An event for a message."""

    model_config = example(name="approved", payload={"by": "anna"})

    name: EventName
    """The event, as the handler waits for it."""
    payload: Json = None
    """What the handler gets: any JSON value."""
    number: Number | None = None
    """Signals only if fewer than this many signals of this name have come; with 1, only the first request counts."""


class SignalKeyRequest(SignalRequest):
    """An event for the message of a topic with a key."""

    model_config = example(key="order-7", name="approved", payload={"by": "anna"})

    key: Label


class SignalResult(ResponseModel):
    """The message that got the event."""

    id: int


class SignalUrlRequest(RequestModel):
    """A URL that signals one event, once."""

    model_config = example(name="approved", expires="7d")

    name: EventName
    """The event."""
    expires: Annotated[Seconds, duration.between(0 * S, 366 * DAY)] = Field(default=7 * DAY, validate_default=True)
    """How long the URL holds; 7 days unless given."""
    number: Number = 1
    """Which signal of this name it may be: the URL signals only if fewer than this many have come."""


class SignalUrl(ResponseModel):
    """The URL. Anyone with it may signal this event to this message, and nothing else."""

    url: str
    """A page with a button; a POST signals."""


class EventsRequest(RequestModel):
    """The claim of the worker that holds the message."""

    claim_id: Id


class MessageEvent(ResponseModel):
    """An event that a message has got, or the end of a wait for it."""

    model_config = example(name="approved", payload={"by": "anna"}, timed_out=False)

    name: str
    """The event. The nth of a name belongs to the nth wait for it."""
    payload: Any
    timed_out: bool
    """The time of the wait was over before the event came; then there is no payload."""


class MessageEvents(ResponseModel):
    """The events of a message, in the order in which they came."""

    events: list[MessageEvent]
    """The events, the first to come first."""


@router.post(
    "/messages/{message_id}/signal",
    response_model=SignalResult,
    summary="Signal an event to a message",
    responses=responses(404),
)
async def signal_message(request: Request, caller: Publisher, message_id: PathId, body: SignalRequest) -> Response:
    """Signal an event to a message that waits for it, or will.

    404 `not_found`: it has ended, or was never published.
    """
    async with writing(request, caller) as conn:
        if not caller.sees_all:
            await _check_sees(conn, caller, message_id)
        found = await run_async(conn, event.signal(message_id, body.name, _payload(body), body.number))
    if found is None:
        raise _ended_problem(message_id)
    return ApiResponse({"id": found})


@router.post(
    "/topics/{topic}/signal",
    response_model=SignalResult,
    summary="Signal an event to the message with a key",
    responses=responses(404),
)
async def signal_key(request: Request, caller: Publisher, topic: Topic, body: SignalKeyRequest) -> Response:
    """Signal an event to the message of a topic with a key.

    If several messages have the key, it is the one that waits for this event, otherwise the oldest. 404 `not_found`:
    there is none.
    """
    call = event.signal_key(topic, body.key, body.name, _payload(body), body.number)
    found = await run_write(request, caller, call)
    if found is None:
        raise Problem(404, f"no message of topic {topic} with this key waits or runs", "not_found")
    return ApiResponse({"id": found})


@router.post(
    "/messages/{message_id}/signal-url",
    response_model=SignalUrl,
    summary="Make a URL that signals an event",
    responses=responses(404, 409),
)
async def make_signal_url(request: Request, caller: Publisher, message_id: PathId, body: SignalUrlRequest) -> Response:
    """Make a URL with which anyone may signal an event to this message, once. A browser shows a button, a POST signals.

    404 `not_found`: there is no such message. 409 `no_address`: `web.url` is not set.
    """
    address = request.app.state.settings.web.url
    if address is None:
        raise Problem(409, NO_ADDRESS, "no_address")
    async with writing(request, caller) as conn:
        await _check_sees(conn, caller, message_id)
        until = await run_async(conn, now()) + body.expires
        url = await run_async(conn, signal_url(address, message_id, body.name, until, body.number))
    return ApiResponse({"url": url})


@router.post(
    "/messages/{message_id}/events",
    response_model=MessageEvents,
    summary="Read the events of a message",
    responses=responses(409),
)
async def load_events(request: Request, caller: Worker, message_id: PathId, body: EventsRequest) -> Response:
    """Return the events that a message has got, to the worker that holds it.

    If the event is not among them that it needs, it settles the message as `wait_for_event`. 409 `lock_lost`: the
    caller no longer holds it.
    """
    async with writing(request, caller) as conn:
        if not caller.sees_all and not any(caller.sees(each.topic) for each in await _topics(conn, message_id)):
            raise lock_lost_problem(message_id)
        rows = await run_async(conn, event.load_events(message_id, body.claim_id))
    if not rows:
        raise lock_lost_problem(message_id)
    events = [MessageEvent.of(each, payload=raw(each.payload)) for each in rows if each.name is not None]
    return ApiResponse({"events": events})


def _payload(body: SignalRequest) -> str | None:
    return body.payload.text if "payload" in body.model_fields_set else None


async def _check_sees(conn: Connection, caller: Caller, message_id: int) -> None:
    if not any(caller.sees(each.topic) for each in await _topics(conn, message_id)):
        raise _ended_problem(message_id)


async def _topics(conn: Connection, message_id: int) -> list[Any]:
    return await run_async(conn, topics_of([message_id]))


def _ended_problem(message_id: int) -> Problem:
    return Problem(404, f"message {message_id} has ended, or was never published", "not_found", id=message_id)
