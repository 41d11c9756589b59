"""Process messages from any language: claim, extend locks, settle. Every call is fenced by the `claim_id`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Literal

import psycopg
from fastapi import APIRouter, Request
from psycopg_pool import PoolTimeout, TooManyRequests
from pydantic import Field, model_validator
from starlette.responses import Response

from pgrouse.client.call import Call, run_async
from pgrouse.client.calls.processing.claim import claim
from pgrouse.client.calls.processing.run import cancelled_ids, heartbeat, read_claimed, set_progress
from pgrouse.client.calls.processing.settle import reject, release
from pgrouse.client.calls.processing.worker import touch_http_holders
from pgrouse.client.connection.database import may_be_caused_by_message, unclaimable_reason
from pgrouse.client.message import Message, claim_refs
from pgrouse.client.processing.settlement import SettleKind, settle_call
from pgrouse.client.queries.message import topics_of
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, DatabasePool, writing
from pgrouse.web.access.security import Worker, check_permission, client_address
from pgrouse.web.background.long_poll import WaitingRequest
from pgrouse.web.http.problem import Problem
from pgrouse.web.v1.description.problem_responses import responses
from pgrouse.web.v1.model import (
    MAX_ITEMS,
    EncryptedContent,
    Id,
    Json,
    Label,
    Lock,
    PathId,
    RequestModel,
    ResponseModel,
    Rule,
    RuledModel,
    Text,
    Timestamp,
    TopicOrPattern,
    Wait,
    at_most_one,
    example,
    given,
    members_of,
)
from pgrouse.web.v1.response import ApiResponse, encrypted, raw
from pgrouse.web.v1.route import StrictRoute

router = APIRouter(prefix="/v1", tags=["work"], route_class=StrictRoute)

MAX_WAIT_S = 30
# A claim stops after the message that reaches this many bytes.
CLAIM_BYTES = 16_777_216


class ClaimMessagesRequest(RequestModel):
    """Which messages to claim."""

    model_config = example(topics=["orders.created"], limit=10, wait=20, worker="rust-1")

    topics: list[TopicOrPattern] = Field(min_length=1, max_length=100)
    """The topics to claim from: names, or patterns: `orders.*` has one level more, `orders.**` any number of them."""
    limit: int = Field(default=1, ge=1, le=MAX_ITEMS)
    """How many messages to claim at most."""
    wait: float = Field(default=0, ge=0, le=MAX_WAIT_S)
    """How many seconds to wait for the first message."""
    lock_duration: Lock | None = None
    """How long to lock the messages, instead of the topic's lock duration. After that, other workers can claim them
    unless the lock was extended."""
    worker: Label | None = None
    """The name of the worker process. With it, the worker is registered (prefixed by the token's name) and can be
    drained. Each process needs its own name."""


@members_of(Message, without=("waited_s", "elapsed_s"))
class ClaimedMessage(ResponseModel):
    """A claimed message; the caller holds its lock."""

    model_config = example(
        key="order-7",
        attempt=1,
        max_attempts=5,
        payload={"id": 7, "total": 9.5},
        state=None,
        lock_duration_s=30.0,
        runs=1,
    )

    payload: Any
    body: str | None
    """Base64. Of an encrypted message: its envelope, which a client with the key can decrypt."""
    encrypted: EncryptedContent | None
    """The key and size of an encrypted body; null: it is not encrypted."""
    headers: dict[str, Any] | None
    state: Any
    """The state that the previous attempt saved."""
    runs: int
    """How many times the message was started, including this time. A deferral or release returns the attempt, but not
    the run."""


class ClaimResult(ResponseModel):
    """The claimed messages, at most `limit`; may be empty."""

    model_config = example(draining=False)

    messages: list[ClaimedMessage]
    draining: bool
    """The worker was asked to drain: it gets no more messages."""


# The other fields that each outcome allows.
ALLOWED_FIELDS = {
    SettleKind.COMPLETE: {"output"},
    SettleKind.RETRY: {"error", "delay", "state"},
    SettleKind.EXPIRE: {"error"},
    SettleKind.REJECT: {"error"},
    SettleKind.FAIL: {"error"},
    SettleKind.DEFER: {"delay", "until", "state", "pause", "reason"},
    SettleKind.RELEASE: {"ran"},
    SettleKind.WAIT: {"event", "event_number", "delay"},
}


def _misplaced(body: SettleRequest) -> str | None:
    given_to_others = body.model_fields_set - {"id", "claim_id", "outcome"} - ALLOWED_FIELDS[body.outcome]
    if given_to_others:
        return f"{min(given_to_others)} is not for {body.outcome}"
    if body.outcome is SettleKind.WAIT and body.event is None:
        return "event is missing: name the event that the message waits for"
    return None


def _only_with(outcome: SettleKind, allowed: set[str]) -> dict[str, Any]:
    """Return the JSON Schema of the members that an outcome may have."""
    others = set().union(*ALLOWED_FIELDS.values()) - allowed
    then: dict[str, Any] = {"properties": dict.fromkeys(sorted(others), False)}
    if outcome is SettleKind.WAIT:
        then = {"allOf": [then, given("event")]}
    return {"if": {"properties": {"outcome": {"const": outcome.value}}}, "then": then}


OF_OUTCOME = Rule({"allOf": [_only_with(*each) for each in ALLOWED_FIELDS.items()]}, _misplaced)
PAUSES_UNTIL = Rule(
    {"if": given("pause"), "then": {"anyOf": [given("delay"), given("until")]}},
    lambda body: (
        "pause was given without delay or until: only operators pause without an end"
        if body.pause and body.delay is body.until is None
        else None
    ),
)


class SettleRequest(RuledModel):
    """How an attempt ended.

    It is `complete`; `retry` while attempts are left, or `expire`, the same when it ran too long; `reject` or `fail`
    permanently; `defer`, `release` or `wait_for_event`, which do not use up the attempt.
    """

    model_config = example(outcome="complete", output={"ok": True})
    rules: ClassVar[tuple[Rule, ...]] = (OF_OUTCOME, at_most_one("delay", "until"), PAUSES_UNTIL)

    claim_id: Id
    outcome: SettleKind
    """How the attempt ended."""
    output: Json = None
    """For complete: any JSON value to store."""
    error: Text | None = None
    """For retry, expire, reject and fail: the error."""
    delay: Wait | None = None
    """For retry and defer: how long to wait. Default for retry: the topic's backoff. For wait_for_event: how long at
    most; without a limit unless given."""
    until: Timestamp | None = None
    """For defer: when the message becomes available, instead of `delay`."""
    state: Json = None
    """For retry and defer: the `state` that the next attempt gets."""
    pause: Literal["topic", "channel"] | None = None
    """For defer: pauses the topic or the channel of the message until it comes back."""
    reason: Text | None = None
    """For defer with a pause: what operators read beside it."""
    ran: bool | None = None
    """For release: whether work on the message had begun; then its run stays counted."""
    event: Label | None = None
    """For wait_for_event: the event. The message comes back with it, or when the time is over."""
    event_number: int | None = Field(default=None, ge=1, le=1000)
    """For wait_for_event: how many waits for an event of this name have begun, with this one; 1 unless given."""

    def value(self, field: str) -> Any:
        """Return what it says of a field of a Settlement; JSON is text."""
        match field:
            case "output" | "state":
                return getattr(self, field).text if field in self.model_fields_set else None
            case "error":
                return self.error or self.outcome.value
            case "after":
                return self.delay
            case "event_number":
                return self.event_number or 1
        return getattr(self, field)


class SettleItem(SettleRequest):
    """How the attempt of one message ended."""

    model_config = example(outcome="complete")

    id: Id


class SettleBatchRequest(RequestModel):
    """Attempts to settle; each message at most once."""

    model_config = example(
        messages=[{"id": 7, "claim_id": 2057183900031095, "outcome": "retry", "error": "timeout", "delay": "30s"}]
    )

    messages: list[SettleItem] = Field(min_length=1, max_length=MAX_ITEMS)

    @model_validator(mode="after")
    def _once_each(self) -> SettleBatchRequest:
        if len({each.id for each in self.messages}) < len(self.messages):
            raise ValueError("a message is listed twice")
        return self


class HeartbeatRequest(RequestModel):
    """A lock to extend."""

    model_config = example(progress={"done": 40, "total": 100})

    claim_id: Id
    lock_duration: Lock | None = None
    """How long from now; the topic's lock duration unless given."""
    progress: Json = None
    """The progress of the work, shown to operators: any JSON value."""


class HeartbeatItem(RequestModel):
    """One lock to extend."""

    id: Id
    claim_id: Id


class HeartbeatBatchRequest(RequestModel):
    """Locks to extend."""

    model_config = example(lock_duration="1m")

    messages: list[HeartbeatItem] = Field(min_length=1, max_length=MAX_ITEMS)
    lock_duration: Lock | None = None
    """How long from now; the topic's lock duration unless given."""


class HeartbeatResult(ResponseModel):
    """Which locks were not extended."""

    lost: list[int]
    """Messages whose lock the caller has lost: stop working on them."""
    cancelled: list[int]
    """Those of the lost messages that were cancelled."""


class SettleResult(ResponseModel):
    """Which attempts were settled."""

    settled: list[int]
    lost: list[int]
    """Messages whose lock the caller had lost: they were not changed."""


# A claim of one worker, without its limit.
ClaimOf = Callable[..., Call[list[Message]]]
# The maximum number at once if a claim fails, possibly because of one of the messages.
MAX_WITHOUT_CONTENTS = 8


@router.post("/claim", response_model=ClaimResult, summary="Claim messages")
async def claim_messages(request: Request, caller: Worker, body: ClaimMessagesRequest) -> Response:
    """Lock messages for the caller, optionally waiting for the first one.

    Settle each message, or extend its lock, within `lock_duration_s`.
    """
    for topic in body.topics:
        check_permission(caller, Role.WORKER, topic)
    db = request.app.state.db
    worker = (f"http:{caller.name}" + (f"/{body.worker}" if body.worker else ""))[:200]
    if await _is_draining(request, worker, body):
        return ApiResponse({"messages": [], "draining": True})
    of_worker = partial(claim, worker, body.topics, bytes=CLAIM_BYTES, lock_duration=body.lock_duration)
    if body.wait:
        with request.app.state.long_poll.admitted(caller.name):
            messages = await _poll(request, caller, body, of_worker)
    else:
        messages = await _claim(db, of_worker, body.limit)
    if messages and await request.is_disconnected():
        await _release_claimed(db, messages)
    # A worker that waited in vain is recorded again; one with messages gets them at once.
    draining = bool(body.wait) and not messages and await _is_draining(request, worker, body)
    return ApiResponse({"messages": [_claimed_message(each) for each in messages], "draining": draining})


async def _is_draining(request: Request, worker: str, body: ClaimMessagesRequest) -> bool:
    """Record the claim of a named worker; return whether it was asked to drain."""
    if body.worker is None:
        return False
    drains: bool = await request.app.state.http_workers.record_claim(
        worker, client_address(request), body.topics, body.limit
    )
    return drains


async def _poll(request: Request, caller: Caller, body: ClaimMessagesRequest, of_worker: ClaimOf) -> list[Message]:
    """Claim, and again whenever there may be messages, until there are some or the time is over."""
    until = time.monotonic() + body.wait
    messages = await _claim_with_slot(request, body, of_worker, until)
    if messages:
        return messages
    async with request.app.state.long_poll.waiting(caller.name, body.topics) as waiter:
        while not messages and await _wait_for_wake(request, waiter.woken, until):
            # The pool has no free connection: the next check wakes this request again.
            with suppress(PoolTimeout, TooManyRequests):
                messages = await _claim_with_slot(request, body, of_worker, until, waiter)
    return messages


async def _claim_with_slot(
    request: Request, body: ClaimMessagesRequest, of_worker: ClaimOf, until: float, waiter: WaitingRequest | None = None
) -> list[Message]:
    """Claim once a slot is free; a woken request does not claim if others have found the topics empty since."""
    long_poll, stopping = request.app.state.long_poll, request.app.state.stopping
    async with long_poll.claim_slot(until) as has_slot:
        if not has_slot or stopping.is_set() or (waiter and not long_poll.may_have_messages(waiter)):
            return []
        checks = long_poll.checks
        messages = await _claim(request.app.state.db, of_worker, body.limit)
        if messages:
            long_poll.record_messages({each.topic for each in messages}, waiter)
        else:
            long_poll.record_no_messages(body.topics, checks)
        return messages


async def _wait_for_wake(request: Request, woken: asyncio.Event, until: float) -> bool:
    """Wait until there may be messages; return False when the time is over or the client has disconnected."""
    left = until - time.monotonic()
    if left <= 0 or request.app.state.stopping.is_set():
        return False
    try:
        async with asyncio.timeout(left):
            await woken.wait()
    except TimeoutError:
        return False
    woken.clear()
    return not request.app.state.stopping.is_set() and not await request.is_disconnected()


async def _claim(db: DatabasePool, of_worker: ClaimOf, limit: int) -> list[Message]:
    try:
        async with db.connection() as conn:
            return await run_async(conn, of_worker(limit))
    except psycopg.Error as error:
        if not may_be_caused_by_message(error):
            raise
    return await _claim_without_contents(db, of_worker, min(limit, MAX_WITHOUT_CONTENTS))


async def _claim_without_contents(db: DatabasePool, of_worker: ClaimOf, limit: int) -> list[Message]:
    """Claim messages without their contents, and read these one by one: a message that cannot be read is rejected."""
    async with db.connection() as conn:
        claimed = await run_async(conn, of_worker(limit, contents=False))
    read = [await _read_contents(db, each) for each in claimed]
    return [each for each in read if each is not None]


async def _read_contents(db: DatabasePool, message: Message) -> Message | None:
    """Return a message with its contents.

    Return None if its lock was lost, or if it was rejected because the contents cannot be read.
    """
    try:
        async with db.connection() as conn:
            held = await run_async(conn, read_claimed(*claim_refs([message])))
        return message.with_contents(held[0]) if held else None
    except psycopg.Error as error:
        if not may_be_caused_by_message(error):
            raise
        why = unclaimable_reason(error)
    async with db.connection() as conn:
        await run_async(conn, reject(*claim_refs([message]), [why]))
    return None


async def _release_claimed(db: DatabasePool, messages: list[Message]) -> None:
    """Release messages whose client has disconnected. If this fails, their locks expire."""
    async with db.connection() as conn:
        await run_async(conn, release(*claim_refs(messages)))


def _claimed_message(message: Message) -> dict[str, Any]:
    contents = {name: raw(getattr(message, name)) for name in ("payload", "headers", "state")}
    return ClaimedMessage.of(message, encrypted=encrypted(message.body), **contents)


@router.post("/settle", response_model=SettleResult, summary="Settle many messages")
async def settle_messages(request: Request, caller: Worker, body: SettleBatchRequest) -> Response:
    """Settle attempts of several outcomes in one transaction. The request is safe to repeat."""
    async with writing(request, caller) as conn:
        lost = await _settle(conn, caller, body.messages)
    request.app.state.settled += len(body.messages) - len(lost)
    return ApiResponse({"settled": [each.id for each in body.messages if each.id not in lost], "lost": sorted(lost)})


@router.post(
    "/messages/{message_id}/settle", response_model=SettleResult, summary="Settle a message", responses=responses(409)
)
async def settle_message(request: Request, caller: Worker, message_id: PathId, body: SettleRequest) -> Response:
    """Settle an attempt. 409 `lock_lost`: the caller had lost the lock, and nothing was changed."""
    ended = SettleItem(id=message_id, **{name: getattr(body, name) for name in body.model_fields_set})
    async with writing(request, caller) as conn:
        if await _settle(conn, caller, [ended]):
            raise lock_lost_problem(message_id)
    request.app.state.settled += 1
    return ApiResponse({"settled": [message_id], "lost": []})


def lock_lost_problem(message_id: int) -> Problem:
    """Return the problem of a caller that has lost the lock."""
    return Problem(409, f"the lock of message {message_id} was lost: stop working on it", "lock_lost", id=message_id)


async def _settle(conn: Connection, caller: Caller, ended: list[SettleItem]) -> set[int]:
    """Settle each; return the ids whose lock was lost."""
    lost = await _ids_of_other_topics(conn, caller, [each.id for each in ended])
    # In the same order as the daemon, so that both lock rows in the same order.
    for kind in sorted(SettleKind):
        batch = sorted((each for each in ended if each.outcome is kind and each.id not in lost), key=lambda e: e.id)
        if batch:
            lost_now = await run_async(conn, _settle_call(kind, batch))
            lost.update(lost_now)
    return lost


def _settle_call(kind: SettleKind, batch: list[SettleItem]) -> Call[list[int]]:
    ids, claim_ids = [each.id for each in batch], [each.claim_id for each in batch]
    return settle_call(kind, ids, claim_ids, lambda field: [each.value(field) for each in batch])


@router.post("/heartbeat", response_model=HeartbeatResult, summary="Extend many locks")
async def extend_locks(request: Request, caller: Worker, body: HeartbeatBatchRequest) -> Response:
    """Extend locks; call it at a third of the lock duration. `lost` lists messages that the caller no longer holds."""
    claims = {each.id: each.claim_id for each in body.messages}
    async with writing(request, caller) as conn:
        return ApiResponse(await _extend(conn, caller, claims, body.lock_duration))


@router.post(
    "/messages/{message_id}/heartbeat",
    response_model=HeartbeatResult,
    summary="Extend a lock",
    responses=responses(409),
)
async def extend_lock(request: Request, caller: Worker, message_id: PathId, body: HeartbeatRequest) -> Response:
    """Extend a lock, and optionally report progress.

    409 `lock_lost`: the caller no longer holds it; `cancelled` says whether the message was cancelled.
    """
    async with writing(request, caller) as conn:
        result = await _extend(conn, caller, {message_id: body.claim_id}, body.lock_duration)
        if not result["lost"] and "progress" in body.model_fields_set:
            await run_async(conn, set_progress([message_id], [body.claim_id], [body.progress.text]))
    if result["lost"]:
        problem = lock_lost_problem(message_id)
        problem.more["cancelled"] = bool(result["cancelled"])
        raise problem
    return ApiResponse(result)


async def _extend(
    conn: Connection, caller: Caller, claims: dict[int, int], lock_duration: timedelta | None
) -> dict[str, list[int]]:
    others = await _ids_of_other_topics(conn, caller, list(claims))
    mine = {id_: claim_id for id_, claim_id in claims.items() if id_ not in others}
    lost = await run_async(conn, heartbeat(list(mine), list(mine.values()), lock_duration))
    await run_async(conn, touch_http_holders(list(mine)))
    cancelled: list[int] = []
    if lost:
        cancelled = await run_async(conn, cancelled_ids(lost, [mine[each] for each in lost]))
    return {"lost": sorted({*lost, *others}), "cancelled": sorted(cancelled)}


async def _ids_of_other_topics(conn: Connection, caller: Caller, ids: list[int]) -> set[int]:
    """Return the messages whose topics the caller may not see: it cannot hold their locks."""
    if caller.sees_all:
        return set()
    return {each.id for each in await run_async(conn, topics_of(ids)) if not caller.sees(each.topic)}
