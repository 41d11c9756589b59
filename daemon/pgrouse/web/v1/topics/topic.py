"""Topics and their channels: message counts, policies, pause and resume."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Request
from pydantic import Field, GetJsonSchemaHandler, RootModel, ValidationError, model_validator
from pydantic_core import CoreSchema
from starlette.responses import Response

from pgrouse.client.apply import policy_change
from pgrouse.client.call import run_async
from pgrouse.client.calls import operate
from pgrouse.client.calls.monitoring.state import TopicState, topic_state
from pgrouse.client.calls.monitoring.stats import TopicStats, stats
from pgrouse.client.calls.monitoring.stats import list_topics as list_names
from pgrouse.client.queries import topic as topic_queries
from pgrouse.client.queries.channel import Channel, find_channels, first_waiting
from pgrouse.client.queries.topic import effective_policy, find_policies
from pgrouse.config import duration
from pgrouse.config.policy.policy_settings import ChannelPolicy, PolicyTable, TopicPolicy
from pgrouse.config.policy.topic_policy import DesiredPolicy, invalid_keywords
from pgrouse.config.setting_types import Keyword
from pgrouse.config.validation_text import describe
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import DatabasePool, reading, run_read, run_write, writing
from pgrouse.web.access.security import Operator, Viewer
from pgrouse.web.http.problem import Problem
from pgrouse.web.v1 import cursor
from pgrouse.web.v1.description.problem_responses import responses
from pgrouse.web.v1.model import (
    DAY,
    AnyTopic,
    CursorQuery,
    Id,
    Label,
    Limit,
    Removal,
    RequestModel,
    ResponseModel,
    Rule,
    RuledModel,
    S,
    Seconds,
    Text,
    Timestamp,
    TimestampText,
    Topic,
    TopicOrPattern,
    at_most_one,
    example,
    members_of,
    whole,
)
from pgrouse.web.v1.response import ApiResponse
from pgrouse.web.v1.route import StrictRoute

router = APIRouter(prefix="/v1/topics", tags=["topics"], route_class=StrictRoute)
STATE = ("state", "paused", "resume_at", "breaker", "full")


@members_of(TopicStats)
class TopicCounts(ResponseModel):
    """The message counts of a topic. From 1,000 on, `ready` and `delayed` are estimates; all else is exact."""

    model_config = example(ready=3, running=1, oldest_ready_s=0.4)


@members_of(TopicState, only=STATE)
class TopicSummary(TopicCounts):
    """The message counts of a topic, and its state."""

    model_config = example(state="running", breaker="closed")


class TopicPage(ResponseModel):
    """A page of topics, ordered by name."""

    topics: list[TopicSummary]
    next: str | None


@members_of(TopicState, only=("topic", "state", "breaker", "probe_at", "handled", "full"))
class TopicDetail(ResponseModel):
    """The policy of a topic, and its state. Durations are in seconds."""

    model_config = example(
        policy={"max_attempts": 5, "lock_duration": 30.0},
        own={"max_attempts": 5},
        state="running",
        breaker="closed",
        handled=True,
    )

    policy: dict[str, Any]
    """The effective policy: the topic's own values, else those of patterns, else the defaults."""
    own: dict[str, Any]
    """The values that the topic itself sets."""
    paused: dict[str, Any] | None
    """Since when, until when, by whom and why it is paused, and `paused_topic`: its own name, a pattern, or `*`.

    null: it is not paused.
    """


class PauseRequest(RuledModel):
    """How long to pause, and why."""

    model_config = example(reason="the relay is down", resume_in="1h")
    rules: ClassVar[tuple[Rule, ...]] = (at_most_one("resume_in", "until"),)

    reason: Text | None = None
    resume_in: Annotated[Seconds, duration.between(0.001 * S, 3650 * DAY)] | None = None
    """Resume automatically after this duration."""
    until: Timestamp | None = None
    """Resume automatically at this time."""


class PauseResult(ResponseModel):
    """When the pause ends; null: when an operator resumes it."""

    model_config = example(paused=True, until="2027-01-31T09:00:00+00:00")

    paused: bool
    """Always true."""
    until: TimestampText | None
    """When it resumes by itself, in ISO 8601; null: when an operator resumes it."""


class ResumeResult(ResponseModel):
    """Whether the topic or channel was paused."""

    was_paused: bool


class PolicyChange(RootModel[dict[str, Any]]):
    """Policy settings by their names. The route checks them itself, off the event loop."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the settings."""
        return handler(TopicPolicy.__pydantic_core_schema__)


class PolicyChangeResult(ResponseModel):
    """The changes, one line for each."""

    changes: list[str]


class PurgeRequest(RequestModel):
    """How many waiting messages to delete."""

    model_config = example(limit=1000)

    limit: int = Field(default=1000, ge=1, le=10_000)
    max_id: Id | None = None
    """Keep messages with a higher id: they were published later."""


class PurgeResult(ResponseModel):
    """How many messages were deleted."""

    deleted: int


class ChannelRequest(RequestModel):
    """One channel of the topic."""

    channel: Label


class ChannelPauseRequest(PauseRequest):
    """Which channel to pause, how long, and why."""

    model_config = example(reason="they asked for it", resume_in="1h")

    channel: Label


class ChannelPolicyChange(RequestModel):
    """A channel, and the policy settings that differ for it."""

    model_config = example(policy={"concurrency": 1})

    channel: Label
    policy: ChannelPolicy

    @model_validator(mode="before")
    @classmethod
    def _null_inherits(cls, given: Any) -> Any:
        policy = given.get("policy") if isinstance(given, dict) else None
        return {**given, "policy": _inheriting(policy)} if isinstance(policy, dict) else given


@members_of(Channel)
class ChannelLimits(ResponseModel):
    """The settings of a channel that differ from the topic's policy."""

    model_config = example(concurrency=1)


class ChannelPage(ResponseModel):
    """A page of the channels that differ from the topic's policy, ordered by name."""

    channels: list[ChannelLimits]
    next: str | None


class ChannelSkipRequest(RequestModel):
    """The channel whose oldest waiting message to skip, and why."""

    model_config = example(reason="the customer is gone")

    channel: Label
    reason: Text | None = None


class ChannelSkipResult(ResponseModel):
    """The message that was skipped; null: no message waits in the channel."""

    model_config = example(id=7)

    id: int | None
    """The id of the message; null: none waits."""


PAUSE = ("paused_topic", "paused_at", "resume_at", "paused_by", "paused_reason")
# The statement timeout of one batch of a purge.
PURGE_TIME = timedelta(seconds=30)


@router.get("", response_model=TopicPage, summary="List topics")
async def list_topics(
    request: Request,
    caller: Viewer,
    cursor_: CursorQuery = None,
    limit: Limit = 100,
) -> Response:
    """List the topics that have messages, dead messages of the last day, a policy, or a worker, with their counts."""
    after = cursor.decode_name("topics", cursor_)
    async with reading(request) as conn:
        names = await run_async(conn, list_names(after, limit, caller.topics))
        topics = await run_async(conn, stats(topics=names, limit=limit)) if names else []
        states = {each.topic: each for each in await run_async(conn, topic_state(names))} if names else {}
    rows = [TopicCounts.of(each) | {name: getattr(states[each.topic], name) for name in STATE} for each in topics]
    return ApiResponse({"topics": rows, "next": cursor.encode_end("topics", names, limit)})


@router.get("/{topic}", response_model=TopicDetail, summary="Show a topic")
async def get_topic(request: Request, caller: Viewer, topic: AnyTopic) -> Response:
    """Return the policy of a topic (the effective values, and those that the topic itself sets) and its state.

    `*` is the defaults; `orders.*` and `orders.**` are patterns of topics.
    """
    async with reading(request) as conn:
        policies = await run_async(conn, find_policies([topic]))
        (state,) = await run_async(conn, topic_state([topic]))
    own = {setting: value for setting, value in policies.get(topic, {}).items() if value is not None}
    paused = {name: getattr(state, name) for name in PAUSE} if state.paused else None
    return ApiResponse(TopicDetail.of(state, policy=effective_policy(policies, topic), own=own, paused=paused))


POLICY_EXAMPLE = {"max_attempts": 5, "timeout": "30s", "max_concurrency": "inherit"}


@router.patch(
    "/{topic}",
    response_model=PolicyChangeResult,
    summary="Change a policy",
    openapi_extra={"requestBody": {"content": {"application/json": {"example": POLICY_EXAMPLE}}}},
)
async def change_policy(request: Request, caller: Operator, topic: AnyTopic, body: PolicyChange) -> Response:
    """Set policy settings of a topic, as `[topics."NAME"]` of the configuration has them.

    The values "inherit" (or null) and "none" are also possible. Settings that are not given stay as they are.
    """
    size = len(await request.body())
    policy = await request.app.state.large_bodies.run(size, _policy, topic, TopicPolicy, body.root)
    return ApiResponse({"changes": await _apply(request, caller, {topic: DesiredPolicy(policy)})})


def _policy(topic: str, model: type[PolicyTable], given: dict[str, Any]) -> Any:
    # In the configuration "@" names a file; here it would be a file of this server.
    if isinstance(given.get("payload_schema"), str) and given["payload_schema"].startswith("@"):
        raise Problem(
            422, "payload_schema: paste the schema itself: this server cannot read your files", "invalid_request"
        )
    try:
        policy = model.model_validate(_inheriting(given))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"])) or "body"
        raise Problem(422, f"{where}: {describe(fault, model.names(), 'setting')}", "invalid_request") from None
    if wrong := invalid_keywords(topic, policy, model):
        setting, text = next(iter(wrong.items()))
        raise Problem(422, f"{setting}: {text}", "invalid_request")
    return policy


def _inheriting(given: dict[str, Any]) -> dict[str, Any]:
    """Replace null by "inherit", as in the database, and 5.0 by 5, which JSON does not distinguish."""
    return {setting: Keyword.INHERIT.value if value is None else _setting(value) for setting, value in given.items()}


def _setting(value: Any) -> Any:
    return {name: whole(each) for name, each in value.items()} if isinstance(value, dict) else whole(value)


@router.delete("/{topic}", response_model=Removal, summary="Remove a topic's policy", responses=responses(404))
async def remove_policy(request: Request, caller: Operator, topic: TopicOrPattern) -> Response:
    """Remove the policy that a topic itself sets, and its pause: it inherits the defaults.

    Its messages and channels stay.
    """
    removed = await run_write(request, caller, topic_queries.remove_policy(topic))
    if not removed:
        raise Problem(404, f"topic {topic} has no policy of its own", "not_found")
    return ApiResponse({"removed": topic})


async def _apply(request: Request, caller: Caller, wanted: dict[str, DesiredPolicy]) -> list[str]:
    return await asyncio.to_thread(_apply_blocking, request.app.state.db, caller, wanted)


def _apply_blocking(db: DatabasePool, caller: Caller, wanted: dict[str, DesiredPolicy]) -> list[str]:
    """Change policies with the code of the command line, on a separate connection."""
    with db.connector.connect_blocking("web") as conn, conn.transaction():
        wait_ms = str(round(db.statement_timeout.total_seconds() * 1000))
        conn.execute(
            "SELECT set_config('messages.actor', %s, true), set_config('statement_timeout', %s, true)",
            [caller.name, wait_ms],
        )
        return [str(each) for each in policy_change.apply(conn, wanted)]


@router.post("/{topic}/purge", response_model=PurgeResult, summary="Purge a topic")
async def purge_topic(request: Request, caller: Operator, topic: Topic, body: PurgeRequest) -> Response:
    """Delete waiting messages of a topic without archiving them, up to `limit` in one call.

    Repeat until `deleted` is 0. Running messages stay.
    """
    async with writing(request, caller, PURGE_TIME) as conn:
        deleted = await run_async(conn, operate.purge_topic(topic, body.limit, body.max_id))
    return ApiResponse({"deleted": deleted})


@router.post("/{topic}/pause", response_model=PauseResult, summary="Pause a topic")
async def pause_topic(request: Request, caller: Operator, topic: AnyTopic, body: PauseRequest) -> Response:
    """Pause a topic until it is resumed, or until a given time.

    Running messages finish normally. `*` pauses all topics.
    """
    return await _pause(request, caller, topic, None, body)


async def _pause(request: Request, caller: Caller, topic: str, channel: str | None, body: PauseRequest) -> Response:
    until = await run_write(request, caller, operate.pause(topic, body.reason, body.resume_in, body.until, channel))
    return ApiResponse({"paused": True, "until": until})


@router.post("/{topic}/resume", response_model=ResumeResult, summary="Resume a topic")
async def resume_topic(request: Request, caller: Operator, topic: AnyTopic) -> Response:
    """End the pause of a topic."""
    return await _resume(request, caller, topic, None)


async def _resume(request: Request, caller: Caller, topic: str, channel: str | None) -> Response:
    was_paused = await run_write(request, caller, operate.resume(topic, channel))
    return ApiResponse({"was_paused": was_paused})


@router.get("/{topic}/channels", response_model=ChannelPage, tags=["channels"], summary="List channels")
async def list_channels(
    request: Request,
    caller: Viewer,
    topic: Topic,
    cursor_: CursorQuery = None,
    limit: Limit = 100,
) -> Response:
    """List the channels whose settings differ from the topic's policy."""
    call = find_channels(topic, after=cursor.decode_name("channels", cursor_), most=limit)
    found = await run_read(request, call)
    end = cursor.encode_end("channels", [each.channel for each in found], limit)
    return ApiResponse({"channels": list(map(ChannelLimits.of, found)), "next": end})


@router.patch(
    "/{topic}/channels", response_model=PolicyChangeResult, tags=["channels"], summary="Change a channel's limits"
)
async def change_channel_limits(
    request: Request, caller: Operator, topic: Topic, body: ChannelPolicyChange
) -> Response:
    """Set the limits of one channel."""
    if wrong := invalid_keywords(topic, body.policy, ChannelPolicy):
        setting, text = next(iter(wrong.items()))
        raise Problem(422, f"{setting}: {text}", "invalid_request")
    wanted = {topic: DesiredPolicy(channels={body.channel: body.policy})}
    return ApiResponse({"changes": await _apply(request, caller, wanted)})


@router.post("/{topic}/channels/pause", response_model=PauseResult, tags=["channels"], summary="Pause a channel")
async def pause_channel(request: Request, caller: Operator, topic: Topic, body: ChannelPauseRequest) -> Response:
    """Pause one channel."""
    return await _pause(request, caller, topic, body.channel, body)


@router.post("/{topic}/channels/resume", response_model=ResumeResult, tags=["channels"], summary="Resume a channel")
async def resume_channel(request: Request, caller: Operator, topic: Topic, body: ChannelRequest) -> Response:
    """End the pause of one channel."""
    return await _resume(request, caller, topic, body.channel)


@router.post(
    "/{topic}/channels/skip",
    response_model=ChannelSkipResult,
    tags=["channels"],
    summary="Skip a channel's first message",
)
async def skip_channel_message(request: Request, caller: Operator, topic: Topic, body: ChannelSkipRequest) -> Response:
    """Archive the oldest waiting message of a channel as failed, so that those behind it can run."""
    async with writing(request, caller) as conn:
        first = await run_async(conn, first_waiting(topic, body.channel))
        skipped = await run_async(conn, operate.skip(first, body.reason))
    return ApiResponse({"id": next(iter(skipped), None)})
