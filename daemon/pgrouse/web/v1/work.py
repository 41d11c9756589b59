"""Working messages from any language: claim, extend the lock, settle. Everything is fenced by the claim's `claim_id`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import psycopg
from fastapi import APIRouter, Request
from psycopg_pool import PoolTimeout, TooManyRequests
from pydantic import Field, model_validator
from starlette.responses import Response

from pgrouse.client.database import may_be_of_a_message, why_not_handed_out
from pgrouse.web.caller import Caller, Role
from pgrouse.web.database_pool import Connection, Database
from pgrouse.web.security import allow, peer
from pgrouse.web.problem import Problem
from pgrouse.web.v1.response import Answer, encrypted, with_raw
from pgrouse.web.v1.caller import Worker
from pgrouse.web.v1.model import (
    MOST,
    REFUSALS,
    Body,
    Encrypted,
    Id,
    Json,
    Label,
    Lock,
    Moment,
    PathId,
    Shape,
    Text,
    Topic,
    Wait,
    example,
)
from pgrouse.web.v1.route import Route
from pgrouse.web.long_poll import Waiter

router = APIRouter(prefix="/v1", tags=["work"], responses=REFUSALS, route_class=Route)

LONGEST_WAIT_S = 30
# A claim ends with the message that reaches so many bytes.
CLAIM_BYTES = 16_777_216


class Claim(Body):
    """What a worker asks for."""

    model_config = example(topics=["orders.created"], limit=10, wait=20, worker="rust-1")

    topics: list[Topic] = Field(min_length=1, max_length=100)
    limit: int = Field(default=1, ge=1, le=MOST)
    """At most so many messages."""
    wait: float = Field(default=0, ge=0, le=LONGEST_WAIT_S)
    """How many seconds to wait for the first one."""
    lock_for: Lock | None = None
    """How long they are locked, instead of the topic's time. After it others get them, unless it is extended."""
    worker: Label | None = None
    """Who works: it then stands in the list of workers, the token's name before its own, and can be asked to drain. One name per process."""


class Claimed(Shape):
    """A message that is the caller's until its lock ends."""

    id: int
    claim_id: int
    topic: str
    channel: str | None
    key: str | None
    priority: int
    attempt: int
    max_attempts: int | None
    payload: Any
    body: str | None
    """Base64; of an encrypted message its envelope, for who has the key."""
    encrypted: Encrypted | None
    """By which key the body is encrypted, and how many bytes it has; null: it is not."""
    headers: dict[str, Any] | None
    state: Any
    """What the attempt before kept."""
    lock_for_s: float
    run_timeout_s: float | None
    runs: int
    """How many times it was begun, this time included. A deferral or a release hands its attempt back, but not its run."""


class ClaimedMany(Shape):
    """What was there, at most `limit`; maybe nothing."""

    messages: list[Claimed]
    draining: bool
    """Somebody has asked the worker to stop: it gets nothing more."""


class Outcome(StrEnum):
    """How an attempt ended."""

    COMPLETE = "complete"
    RETRY = "retry"
    REJECT = "reject"
    FAIL = "fail"
    DEFER = "defer"
    RELEASE = "release"


# What each outcome takes besides.
TAKES = {
    Outcome.COMPLETE: {"output"},
    Outcome.RETRY: {"error", "delay", "state"},
    Outcome.REJECT: {"error"},
    Outcome.FAIL: {"error"},
    Outcome.DEFER: {"delay", "until", "state"},
    Outcome.RELEASE: set[str](),
}


class Ended(Body):
    """How an attempt ended: `complete` it; `retry` it while attempts are left; `reject` or `fail` it for good; `defer` or `release` it, which uses no attempt up."""

    model_config = example(claim_id=2057183900031095, outcome="complete", output={"ok": True})

    claim_id: Id
    outcome: Outcome
    output: Json = None
    """Of complete: any JSON value to keep."""
    error: Text | None = None
    """Of retry, reject and fail: why."""
    delay: Wait | None = None
    """Of retry and defer: how long to wait. Default of retry: the topic's backoff."""
    until: Moment | None = None
    """Of defer: or until when."""
    state: Json = None
    """Of retry and defer: what the next attempt gets as its `state`."""

    @model_validator(mode="after")
    def _fits(self) -> Ended:
        given = self.model_fields_set - {"id", "claim_id", "outcome"}
        if wrong := sorted(given - TAKES[self.outcome]):
            raise ValueError(f"{wrong[0]} is not for {self.outcome}")
        if {"delay", "until"} <= given:
            raise ValueError("delay and until were both given: use one of them")
        return self

    def json_of(self, name: str) -> str | None:
        """Return a member as JSON text, if it was given."""
        return getattr(self, name).text if name in self.model_fields_set else None


class EndedOne(Ended):
    """One of many."""

    model_config = example(id=7, claim_id=2057183900031095, outcome="complete")

    id: Id


class EndedMany(Body):
    """Attempts that ended; each message once."""

    model_config = example(
        messages=[{"id": 7, "claim_id": 2057183900031095, "outcome": "retry", "error": "timeout", "delay": "30s"}]
    )

    messages: list[EndedOne] = Field(min_length=1, max_length=MOST)

    @model_validator(mode="after")
    def _once_each(self) -> EndedMany:
        if len({each.id for each in self.messages}) < len(self.messages):
            raise ValueError("a message stands there twice")
        return self


class Held(Body):
    """A lock to extend."""

    claim_id: Id
    lock_for: Lock | None = None
    """From now; the topic's time unless given."""
    progress: Json = None
    """How far it is, for people who look: any JSON value."""


class HeldOne(Body):
    """One lock of many."""

    id: Id
    claim_id: Id


class HeldMany(Body):
    """Locks to extend."""

    model_config = example(messages=[{"id": 7, "claim_id": 2057183900031095}], lock_for="1m")

    messages: list[HeldOne] = Field(min_length=1, max_length=MOST)
    lock_for: Lock | None = None
    """From now; the topic's time unless given."""


class Kept(Shape):
    """What became of the locks."""

    lost: list[int]
    """Messages that are not the caller's any more: their work is to be dropped."""
    cancelled: list[int]
    """Those of them that somebody cancelled."""


class Settled(Shape):
    """What became of the attempts."""

    settled: list[int]
    lost: list[int]
    """Messages that were not the caller's any more: nothing was changed for them."""


CLAIM = b"SELECT * FROM messages.claim(%s, %s::text[], %s, p_bytes => %s, p_lock_for => %s)"
# Where that failed, perhaps because of one of the messages.
CLAIM_ALONE = CLAIM[:-1] + b", p_contents => false)"
HELD = b"SELECT h.payload, h.body, h.headers, h.state FROM messages.held(%s::bigint[], %s::bigint[]) AS h"
REJECT = b"SELECT messages.reject(%s::bigint[], %s::bigint[], %s::text[])"
MOST_SINGLY = 8


@router.post("/claim", response_model=ClaimedMany, summary="Claim messages")
async def claim(request: Request, caller: Worker, body: Claim) -> Response:
    """Lock messages for the caller, waiting for the first one if asked to. Settle each, or extend its lock, before `lock_for_s` is over."""
    for topic in body.topics:
        allow(caller, Role.WORKER, topic)
    db = request.app.state.db
    worker = (f"http:{caller.name}" + (f"/{body.worker}" if body.worker else ""))[:200]
    if await _drains(request, worker, body):
        return Answer({"messages": [], "draining": True})
    values = [worker, body.topics, body.limit, CLAIM_BYTES, body.lock_for]
    rows = await (_poll(request, caller, body, values) if body.wait else _claim(db, values))
    if rows and await request.is_disconnected():
        await _give_back(db, rows)
    # Who has waited in vain is seen again; with messages he is off at once, whatever the registry says.
    draining = bool(body.wait) and not rows and await _drains(request, worker, body)
    return Answer({"messages": [_shown(row) for row in rows], "draining": draining})


async def _drains(request: Request, worker: str, body: Claim) -> bool:
    """Enter a worker that says its name into the registry; return whether somebody has asked it to drain."""
    if body.worker is None:
        return False
    drains: bool = await request.app.state.roll.sign(worker, peer(request), body.topics, body.limit)
    return drains


async def _poll(request: Request, caller: Caller, body: Claim, values: list[Any]) -> list[dict[str, Any]]:
    """Claim, and again whenever there may be something, until there is or the time is over."""
    until = time.monotonic() + body.wait
    rows = await _claim_in_turn(request, body.topics, values, until)
    if rows:
        return rows
    async with request.app.state.wake.waiting(caller.name, body.topics) as waiter:
        while not rows and await _rung(request, waiter.rung, until):
            # The pool has no connection to spare: the next look wakes again, and nobody is refused who can wait.
            with suppress(PoolTimeout, TooManyRequests):
                rows = await _claim_in_turn(request, body.topics, values, until, waiter)
    return rows


async def _claim_in_turn(
    request: Request, topics: list[str], values: list[Any], until: float, waiter: Waiter | None = None
) -> list[dict[str, Any]]:
    """Claim when it is our turn; who was woken does not if others found nothing meanwhile."""
    wake, stopping = request.app.state.wake, request.app.state.stopping
    async with wake.turn(until) as is_ours:
        if not is_ours or stopping.is_set() or (waiter and not wake.may_have(waiter)):
            return []
        looks = wake.looks
        rows = await _claim(request.app.state.db, values)
        if rows:
            wake.found({row["topic"] for row in rows}, waiter)
        else:
            wake.found_nothing(topics, looks)
        return rows


async def _rung(request: Request, rung: asyncio.Event, until: float) -> bool:
    """Wait until there may be something; return False when the time is over, or nobody waits for the answer any more."""
    left = until - time.monotonic()
    if left <= 0 or request.app.state.stopping.is_set():
        return False
    try:
        async with asyncio.timeout(left):
            await rung.wait()
    except TimeoutError:
        return False
    rung.clear()
    return not request.app.state.stopping.is_set() and not await request.is_disconnected()


async def _claim(db: Database, values: list[Any]) -> list[dict[str, Any]]:
    try:
        async with db.connection() as conn:
            return await (await conn.execute(CLAIM, values)).fetchall()
    except psycopg.Error as error:
        if not may_be_of_a_message(error):
            raise
    return await _claim_singly(db, values)


async def _claim_singly(db: Database, values: list[Any]) -> list[dict[str, Any]]:
    """Claim what is there without its contents, and read them message by message: one that cannot be read is rejected."""
    worker, topics, limit, most, lock_for = values
    alone = [worker, topics, min(limit, MOST_SINGLY), most, lock_for]
    async with db.connection() as conn:
        claimed = await (await conn.execute(CLAIM_ALONE, alone)).fetchall()
    read = [await _read(db, each) for each in claimed]
    return [each for each in read if each is not None]


async def _read(db: Database, message: dict[str, Any]) -> dict[str, Any] | None:
    """Return a message with its contents; None if it is lost, or was rejected since they cannot be read."""
    try:
        async with db.connection() as conn:
            held = await (await conn.execute(HELD, _claims([message]))).fetchone()
        return None if held is None else message | held
    except psycopg.Error as error:
        if not may_be_of_a_message(error):
            raise
        why = why_not_handed_out(error)
    async with db.connection() as conn:
        await conn.execute(REJECT, [*_claims([message]), [why]])
    return None


async def _give_back(db: Database, rows: list[dict[str, Any]]) -> None:
    """Release what nobody will work: whoever asked has hung up. If this fails, the locks run out."""
    async with db.connection() as conn:
        await conn.execute(b"SELECT messages.release(%s::bigint[], %s::bigint[])", _claims(rows))


def _claims(rows: Iterable[dict[str, Any]]) -> list[list[int]]:
    held = list(rows)
    return [[row["id"] for row in held], [row["claim_id"] for row in held]]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    shown = with_raw(row, "payload", "headers", "state") | {"encrypted": encrypted(row["body"])}
    return {name: value for name, value in shown.items() if name not in ("waited_s", "elapsed_s")}


@router.post("/settle", response_model=Settled, summary="Settle many messages")
async def settle_many(request: Request, caller: Worker, body: EndedMany) -> Response:
    """End attempts, of several kinds at once and in one transaction. Sent again, it does nothing twice."""
    async with request.app.state.db.write(caller) as conn:
        lost = await _settle(conn, caller, body.messages)
    request.app.state.settled += len(body.messages) - len(lost)
    return Answer({"settled": [each.id for each in body.messages if each.id not in lost], "lost": sorted(lost)})


@router.post("/messages/{message_id}/settle", response_model=Settled, summary="Settle a message")
async def settle(request: Request, caller: Worker, message_id: PathId, body: Ended) -> Response:
    """End an attempt. 409 `lock_lost`: it was not the caller's any more, and nothing was changed."""
    ended = EndedOne(id=message_id, **{name: getattr(body, name) for name in body.model_fields_set})
    async with request.app.state.db.write(caller) as conn:
        if await _settle(conn, caller, [ended]):
            raise lost_lock(message_id)
    request.app.state.settled += 1
    return Answer({"settled": [message_id], "lost": []})


def lost_lock(message_id: int) -> Problem:
    """Return the problem of who settles what is not his any more."""
    return Problem(409, f"message {message_id} is not yours any more: drop its work", "lock_lost", id=message_id)


async def _settle(conn: Connection, caller: Caller, ended: list[EndedOne]) -> set[int]:
    """Settle each; return the ids whose lock was lost."""
    lost = await _of_others(conn, caller, [each.id for each in ended])
    # In the order of the daemon: whoever settles several kinds takes their rows in the same one.
    for outcome in Outcome:
        batch = sorted((each for each in ended if each.outcome is outcome and each.id not in lost), key=lambda e: e.id)
        if batch:
            lost |= set(await _value(conn, *_statement(outcome, batch)))
    return lost


def _statement(outcome: Outcome, batch: list[EndedOne]) -> tuple[bytes, list[Any]]:
    ids, claims = [each.id for each in batch], [each.claim_id for each in batch]
    errors = [each.error or outcome.value for each in batch]
    delays: list[timedelta | None] = [each.delay for each in batch]
    untils: list[datetime | None] = [each.until for each in batch]
    states = [each.json_of("state") for each in batch]
    match outcome:
        case Outcome.COMPLETE:
            outputs = [each.json_of("output") for each in batch]
            return b"SELECT messages.complete(%s::bigint[], %s::bigint[], %s::text[]::jsonb[])", [ids, claims, outputs]
        case Outcome.RETRY:
            call = b"SELECT messages.retry(%s::bigint[], %s::bigint[], %s::text[], %s::interval[], %s::text[]::jsonb[])"
            return call, [ids, claims, errors, delays, states]
        case Outcome.REJECT:
            return b"SELECT messages.reject(%s::bigint[], %s::bigint[], %s::text[])", [ids, claims, errors]
        case Outcome.FAIL:
            return b"SELECT messages.fail(%s::bigint[], %s::bigint[], %s::text[])", [ids, claims, errors]
        case Outcome.DEFER:
            call = b"SELECT messages.defer(%s::bigint[], %s::bigint[], %s::interval[], %s::timestamptz[], %s::text[]::jsonb[])"
            return call, [ids, claims, delays, untils, states]
        case Outcome.RELEASE:
            return b"SELECT messages.release(%s::bigint[], %s::bigint[])", [ids, claims]


@router.post("/heartbeat", response_model=Kept, summary="Extend many locks")
async def heartbeat_many(request: Request, caller: Worker, body: HeldMany) -> Response:
    """Extend locks, at a third of their time. What is `lost` belongs to somebody else by now."""
    claims = {each.id: each.claim_id for each in body.messages}
    async with request.app.state.db.write(caller) as conn:
        return Answer(await _extend(conn, caller, claims, body.lock_for))


@router.post("/messages/{message_id}/heartbeat", response_model=Kept, summary="Extend a lock")
async def heartbeat(request: Request, caller: Worker, message_id: PathId, body: Held) -> Response:
    """Extend a lock, and say how far the work is. 409 `lock_lost`: it is not the caller's any more; `cancelled` says why."""
    async with request.app.state.db.write(caller) as conn:
        kept = await _extend(conn, caller, {message_id: body.claim_id}, body.lock_for)
        if not kept["lost"] and "progress" in body.model_fields_set:
            call = b"SELECT messages.progress(%s::bigint[], %s::bigint[], %s::text[]::jsonb[], true)"
            await conn.execute(call, [[message_id], [body.claim_id], [body.progress.text]])
    if kept["lost"]:
        problem = lost_lock(message_id)
        problem.more["cancelled"] = bool(kept["cancelled"])
        raise problem
    return Answer(kept)


async def _extend(
    conn: Connection, caller: Caller, claims: dict[int, int], lock_for: timedelta | None
) -> dict[str, list[int]]:
    others = await _of_others(conn, caller, list(claims))
    mine = {id_: claim_id for id_, claim_id in claims.items() if id_ not in others}
    held = [list(mine), list(mine.values())]
    lost = set(await _value(conn, b"SELECT messages.heartbeat(%s::bigint[], %s::bigint[], %s)", [*held, lock_for]))
    await conn.execute(b"SELECT messages.worker_holds(%s::bigint[])", [list(mine)])
    cancelled = []
    if lost:
        gone = [sorted(lost), [mine[each] for each in sorted(lost)]]
        cancelled = await _value(conn, b"SELECT messages.was_cancelled(%s::bigint[], %s::bigint[])", gone)
    return {"lost": sorted(lost | others), "cancelled": sorted(cancelled)}


OF_OTHERS = b"""
    SELECT m.id FROM messages.message AS m WHERE m.id = ANY (%(ids)s::bigint[]) AND NOT m.topic LIKE ANY (%(like)s::text[])
    UNION ALL
    SELECT a.id FROM messages.message_archive AS a WHERE a.id = ANY (%(ids)s::bigint[]) AND NOT a.topic LIKE ANY (%(like)s::text[])"""


async def _of_others(conn: Connection, caller: Caller, ids: list[int]) -> set[int]:
    """Return the messages whose topics are closed to the caller: to him their locks are lost."""
    if caller.sees_all:
        return set()
    rows = await (await conn.execute(OF_OTHERS, {"ids": ids, "like": caller.like})).fetchall()
    return {row["id"] for row in rows}


async def _value(conn: Connection, call: bytes, values: list[Any]) -> Any:
    row = await (await conn.execute(call, values)).fetchone()
    return None if row is None else next(iter(row.values()))
