"""Topics and their channels: what stands in them, their policies, pause and resume."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field, RootModel, ValidationError, model_validator
from starlette.responses import Response

from pgrouse.client import policy_change
from pgrouse.config.topic_policy import DEFAULTS, ChannelPolicy, Knobs, TopicPolicy, Wanted, Word, misplaced
from pgrouse.web.caller import Caller, Role
from pgrouse.web.database_pool import Database
from pgrouse.web.security import allow
from pgrouse.web.problem import Problem
from pgrouse.web.v1 import cursor
from pgrouse.web.v1.response import Answer
from pgrouse.web.v1.caller import Operator, Viewer
from pgrouse.web.v1.model import (
    REFUSALS,
    AnyTopic,
    Body,
    Cursor,
    Id,
    Label,
    Limit,
    Moment,
    Shape,
    Text,
    Topic,
    Wait,
    example,
)
from pgrouse.web.v1.route import Route

router = APIRouter(prefix="/v1/topics", tags=["topics"], responses=REFUSALS, route_class=Route)


class Standing(Shape):
    """What stands in a topic. Counts end at 10,000, which then means "at least"."""

    topic: str
    ready: int
    delayed: int
    running: int
    dead_last_day: int
    oldest_ready_s: float | None
    handled: bool
    """Whether a worker that lives works it."""
    paused: bool


class Topics(Shape):
    """A page of topics, by name."""

    topics: list[Standing]
    next: str | None


class Shown(Shape):
    """A topic's policy. Durations are seconds."""

    topic: str
    policy: dict[str, Any]
    """What holds: its own values, else the defaults."""
    own: dict[str, Any]
    """What the topic sets itself."""
    paused: dict[str, Any] | None


class Pause(Body):
    """For how long, and why."""

    model_config = example(why="the relay is down", resume_in="1h")

    why: Text | None = None
    resume_in: Wait | None = None
    """End by itself after so long,"""
    until: Moment | None = None
    """or at this time."""

    @model_validator(mode="after")
    def _not_both(self) -> Pause:
        if self.resume_in is not None and self.until is not None:
            raise ValueError("resume_in and until were both given: use one of them")
        if self.resume_in is not None and self.resume_in < timedelta(milliseconds=1):
            raise ValueError("resume_in is too short: at least 1ms")
        return self


class Paused(Shape):
    """Until when; null: until somebody resumes it."""

    paused: bool
    until: str | None


class Resumed(Shape):
    """Whether it was paused."""

    was_paused: bool


class Given(RootModel[dict[str, Any]]):
    """Knobs of a policy by their names."""


class Changed(Shape):
    """What was changed, one line each."""

    changes: list[str]


class Removed(Shape):
    """Which topic has the defaults from now on."""

    removed: str


class Purge(Body):
    """How much of what waits to delete."""

    model_config = example(limit=1000)

    limit: int = Field(default=1000, ge=1, le=10_000)
    upto: Id | None = None
    """Nothing with a higher id, which was published later."""


class Purged(Shape):
    """How many messages were deleted."""

    deleted: int


class Channel(Body):
    """One channel of the topic."""

    channel: Label


class ChannelPause(Pause):
    """Which channel, for how long, and why."""

    model_config = example(channel="customer-7", why="they asked for it", resume_in="1h")

    channel: Label


class ChannelChange(Body):
    """Which channel, and what differs for it."""

    model_config = example(channel="customer-7", policy={"concurrency": 1})

    channel: Label
    policy: ChannelPolicy

    @model_validator(mode="before")
    @classmethod
    def _null_inherits(cls, given: Any) -> Any:
        policy = given.get("policy") if isinstance(given, dict) else None
        return {**given, "policy": _inheriting(policy)} if isinstance(policy, dict) else given


class ChannelRow(Shape):
    """What differs for a channel."""

    channel: str
    concurrency: int | None
    min_interval: float | None
    paused: bool


class Channels(Shape):
    """A page of the channels that differ from the topic's policy, by name."""

    channels: list[ChannelRow]
    next: str | None


class Skip(Body):
    """Which channel, and why."""

    channel: Label
    reason: Text | None = None


class Skipped(Shape):
    """The message that was skipped; null: none waits there."""

    id: int | None


# What one batch of a purge may take.
PURGE_TIME = timedelta(seconds=30)
IS_PAUSED = "(t.paused_at IS NOT NULL AND (t.resume_at IS NULL OR t.resume_at > clock_timestamp()))"
LIST = f"""
    SELECT s.*, coalesce({IS_PAUSED}, false) AS paused
    FROM messages.stats() AS s LEFT JOIN messages.topic AS t ON t.topic = s.topic
    WHERE s.topic COLLATE "C" > %s AND (%s::text[] IS NULL OR s.topic LIKE ANY (%s)) ORDER BY s.topic COLLATE "C" LIMIT %s"""  # noqa: S608


@router.get("", response_model=Topics, summary="List topics")
async def list_topics(
    request: Request,
    caller: Viewer,
    cursor_: Annotated[Cursor | None, Query(alias="cursor")] = None,
    limit: Limit = 100,
) -> Response:
    """List the topics that have messages, dead ones of the last day, or a policy, with what stands in them."""
    like = None if caller.sees_all else caller.like
    async with request.app.state.db.read() as conn:
        values = [_name("topics", cursor_), like, like, limit]
        rows = await (await conn.execute(LIST.encode(), values)).fetchall()
    return Answer({"topics": rows, "next": _next("topics", rows, "topic", limit)})


def _name(kind: str, given: str | None) -> str:
    place = cursor.read(kind, given)
    if place is not None and not (isinstance(place, str) and "\x00" not in place and place.isprintable()):
        raise Problem(422, "cursor: not one of this list; use `next` of the page before", "invalid_cursor")
    return place or ""


def _next(kind: str, rows: list[dict[str, Any]], column: str, limit: int) -> str | None:
    return cursor.write(kind, rows[-1][column]) if len(rows) == limit else None


@router.get("/{topic}", response_model=Shown, summary="Show a topic")
async def show(request: Request, caller: Viewer, topic: AnyTopic) -> Response:
    """Return a topic's policy: what holds, and what of it is its own. `*` holds the defaults."""
    _allow(caller, Role.VIEWER, topic)
    query = b"SELECT t.* FROM messages.topic AS t WHERE t.topic IN ('*', %s)"
    async with request.app.state.db.read() as conn:
        rows = {row["topic"]: row for row in await (await conn.execute(query, [topic])).fetchall()}
    own, defaults = rows.get(topic, {}), rows[DEFAULTS]
    knobs = TopicPolicy.names()
    return Answer(
        {
            "topic": topic,
            "policy": {knob: defaults[knob] if own.get(knob) is None else own[knob] for knob in knobs},
            "own": {knob: own[knob] for knob in knobs if own.get(knob) is not None},
            "paused": _pause_of(own),
        }
    )


def _pause_of(row: dict[str, Any]) -> dict[str, Any] | None:
    if row.get("paused_at") is None:
        return None
    return {name: row[name] for name in ("paused_at", "resume_at", "paused_by", "paused_why")}


def _allow(caller: Caller, role: Role, topic: str) -> None:
    allow(caller, role, None if topic == DEFAULTS else topic)


@router.patch("/{topic}", response_model=Changed, summary="Change a policy")
async def change(request: Request, caller: Operator, topic: AnyTopic, body: Given) -> Response:
    """Set knobs of a topic's policy, as `[topics."NAME"]` of the configuration has them; "inherit" (or null) and "none" too. What is not named stays."""
    _allow(caller, Role.OPERATOR, topic)
    size = len(await request.body())
    policy = await request.app.state.aside.run(size, _policy, topic, TopicPolicy, body.root)
    return Answer({"changes": await _apply(request, caller, {topic: Wanted(policy)})})


def _policy(topic: str, model: type[Knobs], given: dict[str, Any]) -> Any:
    # In the configuration it may be a file's name; here that would be one of this machine.
    if isinstance(given.get("payload_schema"), str) and given["payload_schema"].startswith("@"):
        raise Problem(422, "payload_schema: give the schema itself", "invalid_request")
    try:
        policy = model.model_validate(_inheriting(given))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, fault["loc"])) or "body"
        raise Problem(422, f"{where}: {fault['msg'].removeprefix('Value error, ')}", "invalid_request") from None
    if wrong := misplaced(topic, policy, model):
        knob, text = next(iter(wrong.items()))
        raise Problem(422, f"{knob}: {text}", "invalid_request")
    return policy


def _inheriting(given: dict[str, Any]) -> dict[str, Any]:
    """Take null for what it says in the database: the default holds."""
    return {knob: Word.INHERIT.value if value is None else value for knob, value in given.items()}


@router.delete("/{topic}", response_model=Removed, summary="Remove a topic's policy")
async def remove(request: Request, caller: Operator, topic: Topic) -> Response:
    """Take away what a topic sets itself, a pause too: the defaults hold. Its messages and its channels stay."""
    allow(caller, Role.OPERATOR, topic)
    query = b"DELETE FROM messages.topic AS t WHERE t.topic = %s AND t.topic <> '*' RETURNING t.topic AS removed"
    async with request.app.state.db.write(caller) as conn:
        row = await (await conn.execute(query, [topic])).fetchone()
    if row is None:
        raise Problem(404, f"topic {topic} has no policy of its own", "not_found")
    return Answer(row)


async def _apply(request: Request, caller: Caller, wanted: dict[str, Wanted]) -> list[str]:
    return await asyncio.to_thread(_apply_blocking, request.app.state.db, caller, wanted)


def _apply_blocking(db: Database, caller: Caller, wanted: dict[str, Wanted]) -> list[str]:
    """Change policies as the command line does, on a connection of its own: rare, and then the same code."""
    with db.connecting.connect_blocking("web") as conn, conn.transaction():
        wait_ms = str(round(db.statement_timeout.total_seconds() * 1000))
        conn.execute(
            "SELECT set_config('messages.actor', %s, true), set_config('statement_timeout', %s, true)",
            [caller.name, wait_ms],
        )
        return [str(each) for each in policy_change.apply(conn, wanted)]


@router.post("/{topic}/purge", response_model=Purged, summary="Purge a topic")
async def purge(request: Request, caller: Operator, topic: Topic, body: Purge) -> Response:
    """Delete what waits in a topic, without a trace, so many messages a call: until nothing is deleted any more. What runs is left alone."""
    allow(caller, Role.OPERATOR, topic)
    query = b"SELECT messages.purge_topic(%s, %s, %s) AS deleted"
    async with request.app.state.db.write(caller, PURGE_TIME) as conn:
        row = await (await conn.execute(query, [topic, body.limit, body.upto])).fetchone()
    return Answer(row)


@router.post("/{topic}/pause", response_model=Paused, summary="Pause a topic")
async def pause(request: Request, caller: Operator, topic: AnyTopic, body: Pause) -> Response:
    """Stop a topic until it is resumed, or until a time. What runs ends as it would; `*` stops everything."""
    _allow(caller, Role.OPERATOR, topic)
    return await _pause(request, caller, topic, None, body)


async def _pause(request: Request, caller: Caller, topic: str, channel: str | None, body: Pause) -> Response:
    query = b"SELECT messages.pause(%s, %s, %s, %s, %s) AS until"
    async with request.app.state.db.write(caller) as conn:
        values = [topic, body.why, body.resume_in, body.until, channel]
        row = await (await conn.execute(query, values)).fetchone()
    return Answer({"paused": True, "until": row and row["until"]})


@router.post("/{topic}/resume", response_model=Resumed, summary="Resume a topic")
async def resume(request: Request, caller: Operator, topic: AnyTopic) -> Response:
    """End a pause."""
    _allow(caller, Role.OPERATOR, topic)
    return await _resume(request, caller, topic, None)


async def _resume(request: Request, caller: Caller, topic: str, channel: str | None) -> Response:
    query = b"SELECT messages.resume(%s, %s) AS was_paused"
    async with request.app.state.db.write(caller) as conn:
        row = await (await conn.execute(query, [topic, channel])).fetchone()
    return Answer({"was_paused": bool(row and row["was_paused"])})


CHANNELS = f"""
    SELECT t.channel, t.concurrency, extract(epoch FROM t.min_interval)::float8 AS min_interval, coalesce({IS_PAUSED}, false) AS paused,
           t.paused_at, t.resume_at, t.paused_by, t.paused_why
    FROM messages.channel AS t WHERE t.topic = %s AND t.channel > %s ORDER BY t.channel LIMIT %s"""  # noqa: S608


@router.get("/{topic}/channels", response_model=Channels, tags=["channels"], summary="List channels")
async def list_channels(
    request: Request,
    caller: Viewer,
    topic: Topic,
    cursor_: Annotated[Cursor | None, Query(alias="cursor")] = None,
    limit: Limit = 100,
) -> Response:
    """List the channels for which something differs from the topic's policy."""
    allow(caller, Role.VIEWER, topic)
    values = [topic, _name("channels", cursor_), limit]
    async with request.app.state.db.read() as conn:
        rows = await (await conn.execute(CHANNELS.encode(), values)).fetchall()
    return Answer({"channels": rows, "next": _next("channels", rows, "channel", limit)})


@router.patch("/{topic}/channels", response_model=Changed, tags=["channels"], summary="Change a channel's limits")
async def change_channel(request: Request, caller: Operator, topic: Topic, body: ChannelChange) -> Response:
    """Set what differs for one channel."""
    allow(caller, Role.OPERATOR, topic)
    if wrong := misplaced(topic, body.policy, ChannelPolicy):
        knob, text = next(iter(wrong.items()))
        raise Problem(422, f"{knob}: {text}", "invalid_request")
    wanted = {topic: Wanted(channels={body.channel: body.policy})}
    return Answer({"changes": await _apply(request, caller, wanted)})


@router.post("/{topic}/channels/pause", response_model=Paused, tags=["channels"], summary="Pause a channel")
async def pause_channel(request: Request, caller: Operator, topic: Topic, body: ChannelPause) -> Response:
    """Stop one channel."""
    allow(caller, Role.OPERATOR, topic)
    return await _pause(request, caller, topic, body.channel, body)


@router.post("/{topic}/channels/resume", response_model=Resumed, tags=["channels"], summary="Resume a channel")
async def resume_channel(request: Request, caller: Operator, topic: Topic, body: Channel) -> Response:
    """End the pause of one channel."""
    allow(caller, Role.OPERATOR, topic)
    return await _resume(request, caller, topic, body.channel)


FIRST = b"""
    SELECT messages.skip(ARRAY(
      SELECT m.id FROM messages.message AS m
      WHERE m.topic = %(topic)s AND m.channel = %(channel)s AND m.claim_id IS NULL
      ORDER BY m.id LIMIT 1), %(reason)s) AS skipped"""


@router.post(
    "/{topic}/channels/skip", response_model=Skipped, tags=["channels"], summary="Skip a channel's first message"
)
async def skip_first(request: Request, caller: Operator, topic: Topic, body: Skip) -> Response:
    """Take the oldest message that waits in a channel out of the way of the others; it is archived as failed."""
    allow(caller, Role.OPERATOR, topic)
    async with request.app.state.db.write(caller) as conn:
        row = await (await conn.execute(FIRST, {"topic": topic, **body.model_dump()})).fetchone()
    return Answer({"id": row["skipped"][0] if row and row["skipped"] else None})
