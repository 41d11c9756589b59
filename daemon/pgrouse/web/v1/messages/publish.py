"""Publish one message, many at once, or the body of a request as the payload.

With an `Idempotency-Key` a request is done once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeVar

from fastapi import APIRouter, Header, Request
from psycopg.errors import InvalidParameterValue
from pydantic import Field, ValidationError
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.calls.web import SavedAnswer, begin_request, end_request
from pgrouse.config.policy.own_policy import OwnBackoff
from pgrouse.errors import InvalidMessage
from pgrouse.publishing.json_rows import INSERT, row_json
from pgrouse.publishing.new_message import MAX_AFTER, AfterFailed, NewMessage, OnConflict, to_columns
from pgrouse.publishing.publish import publish_columns
from pgrouse.publishing.publish_statement import is_a_row
from pgrouse.telemetry.trace_context import TRACEPARENT, TRACESTATE, VALID
from pgrouse.values import jsonb
from pgrouse.values.jsonb import Raw
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection
from pgrouse.web.access.security import Publisher, check_permission
from pgrouse.web.background.publish_batcher import LARGE_CHARS
from pgrouse.web.http.problem import Problem
from pgrouse.web.v1.description.problem_responses import responses
from pgrouse.web.v1.model import (
    MAX_ITEMS,
    Base64,
    Id,
    Label,
    OwnRetention,
    OwnTimeout,
    RequestModel,
    ResponseModel,
    Rule,
    RuledModel,
    Timestamp,
    Topic,
    Wait,
    example,
    given,
    invalid_body,
)
from pgrouse.web.v1.response import dumps

if TYPE_CHECKING:
    from pgrouse.crypto.cipher import Cipher

router = APIRouter(prefix="/v1", tags=["publish"])

M = TypeVar("M", bound=RequestModel)
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="A repeated request with the same key within 24 hours gets the first response and does nothing.",
    ),
]


def _carries_nothing(body: PublishRequest) -> str | None:
    if {"payload", "body"} & body.model_fields_set:
        return None
    return "there is no payload: give a payload (null is possible) or a body"


def _never(*parts: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a body that is not all of these at the same time."""
    return {"not": {"allOf": [*parts]}}


def _merges(*ways: str) -> dict[str, Any]:
    return {"required": ["on_conflict"], "properties": {"on_conflict": {"enum": [*ways]}}}


NEEDS_KEY = [given("debounce"), given("throttle"), _merges("replace", "ignore", "append")]
WAITS_FOR_OTHERS = {"required": ["after"], "properties": {"after": {"type": "array", "minItems": 1}}}
# What `to_columns` refuses.
TOGETHER = [
    {"anyOf": [{"required": ["payload"]}, {"required": ["body"]}]},
    _never(given("payload", "body")),
    _never(given("delay", "available_at")),
    {"anyOf": [given("key"), {"not": {"anyOf": NEEDS_KEY}}]},
    {"anyOf": [given("debounce"), {"not": given("max_delay")}]},
    _never(given("debounce"), {"anyOf": [*map(given, ("delay", "available_at", "throttle"))]}),
    _never(given("debounce"), WAITS_FOR_OTHERS),
    _never(given("debounce"), _merges("ignore")),
    _never(given("throttle"), _merges("replace", "append")),
    _never(WAITS_FOR_OTHERS, _merges("replace", "append")),
    _never(given("body"), _merges("append")),
]


class PublishRequest(RuledModel):
    """A message to publish, with a `payload` (JSON) or a `body` (bytes)."""

    rules: ClassVar[tuple[Rule, ...]] = (Rule({"allOf": TOGETHER}, _carries_nothing),)

    topic: Topic
    payload: Any = None
    """Any JSON value."""
    body: Base64 | None = None
    """Bytes in Base64, instead of a payload."""
    headers: dict[str, Any] | None = None
    """Metadata of the message."""
    key: Label | None = None
    """Deduplication key within the topic."""
    channel: Label | None = None
    """Group within the topic for fairness and limits."""
    priority: int | None = Field(default=None, ge=0, le=9)
    """0 is claimed first, 9 last; 5 unless given."""
    delay: Wait | None = None
    """How long until the message becomes available."""
    available_at: Timestamp | None = None
    """When the message becomes available, instead of `delay`."""
    ttl: Wait | None = None
    """How long the message may wait before it expires."""
    max_attempts: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Overrides the topic's `max_attempts`; 0 is no limit."""
    timeout: OwnTimeout | None = None
    """How long an attempt may run; overrides the topic's."""
    backoff: OwnBackoff | None = None
    """How long to wait before the next attempt: a kind, or an object with `kind` and its other parts; overrides the
    topic's."""
    retention: OwnRetention | None = None
    """How long the archive keeps the message; overrides the topic's."""
    on_conflict: OnConflict = "error"
    """What to do if a message with this key already waits: `error`, `replace` it, `ignore` this message, or `append`
    the payload to it."""
    debounce: Wait | None = None
    """How long the key must not be published again before the message becomes available; `error` means `replace`."""
    max_delay: Wait | None = None
    """The longest time that `debounce` may keep the message after the first publish of its key."""
    throttle: Wait | None = None
    """Ignore this message while the last one of its key waits, and for this time after that one started."""
    after: list[Id] | None = Field(default=None, max_length=MAX_AFTER)
    """Ids of predecessors: the message is not claimed before all of them have succeeded."""
    after_failed: AfterFailed = "hold"
    """What to do if a predecessor does not succeed: `hold` the message until it is redriven, `cancel` the message too,
    or `run` it anyway."""
    batch: Id | None = None
    """The batch in which the message counts."""

    def new(self) -> NewMessage:
        """Return the message for the publisher."""
        return NewMessage(**{name: getattr(self, name) for name in self.model_fields_set})


class PublishBatchRequest(RequestModel):
    """Messages that are published in one transaction, all or none."""

    messages: list[PublishRequest] = Field(min_length=1, max_length=MAX_ITEMS)


class PublishResult(ResponseModel):
    """The outcome of publishing one message."""

    model_config = example(id=7)

    id: int | None
    """The id of the message, or of the one that already had its key; null if it was dropped."""
    outcome: str
    """inserted, replaced, ignored, appended, held, or dropped (the topic was full)."""


class PublishBatchResult(ResponseModel):
    """The outcome for each message, in their order."""

    model_config = example(results=[{"id": 7, "outcome": "inserted"}, {"id": 8, "outcome": "inserted"}])

    results: list[PublishResult]


INSERTED = '{{"id":{},"outcome":"inserted"}}'
EXAMPLE = {"topic": "orders.created", "payload": {"id": 7, "total": 9.5}, "key": "order-7"}


def _request_body(model: type[RequestModel], example: Any) -> dict[str, Any]:
    """Describe a request body that the route parses itself."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}


@router.post(
    "/messages",
    status_code=201,
    response_model=PublishResult,
    openapi_extra=_request_body(PublishRequest, EXAMPLE),
    summary="Publish a message",
    responses=responses(409, 415),
)
async def publish_message(request: Request, caller: Publisher, idempotency_key: IdempotencyKey = None) -> Response:
    """Publish one message. It is committed when the response is sent."""
    content = await request.body()
    prepared = await request.app.state.large_bodies.run(len(content), _prepare_one, request, caller, content)
    return await _answer_one(request, caller, idempotency_key, content, prepared)


@router.post(
    "/messages/batch",
    status_code=201,
    response_model=PublishBatchResult,
    openapi_extra=_request_body(PublishBatchRequest, {"messages": [EXAMPLE]}),
    summary="Publish many messages",
    responses=responses(409, 415),
)
async def publish_messages(request: Request, caller: Publisher, idempotency_key: IdempotencyKey = None) -> Response:
    """Publish up to 1,000 messages in one transaction."""
    content = await request.body()
    batch = await request.app.state.large_bodies.run(len(content), _prepare_batch, request, caller, content)
    return await _answer_once(
        request, caller, idempotency_key, content, lambda conn: _publish_many(conn, batch), many=True
    )


# Only JSON: if a body may also be JSON of any type, generators cannot tell whether a value is JSON or bytes. The
# description says that bytes are possible.
ANY_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": {}, "example": {"id": 7}}}}}


@router.post(
    "/topics/{topic}/messages",
    status_code=201,
    response_model=PublishResult,
    openapi_extra=ANY_BODY,
    summary="Publish a payload",
    responses=responses(409),
)
async def publish_payload(
    request: Request,
    caller: Publisher,
    topic: Topic,
    key: Label | None = None,
    channel: Label | None = None,
    priority: Annotated[int | None, Field(ge=0, le=9)] = None,
    delay: Wait | None = None,
    ttl: Wait | None = None,
    on_conflict: OnConflict = "error",
    debounce: Wait | None = None,
    max_delay: Wait | None = None,
    throttle: Wait | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Publish the request body: JSON as the payload; with any other `Content-Type`, its bytes.

    For webhooks and simple clients.
    """
    content = await request.body()
    about = NewMessage(
        topic=topic,
        key=key,
        channel=channel,
        priority=priority,
        delay=delay,
        ttl=ttl,
        on_conflict=on_conflict,
        debounce=debounce,
        max_delay=max_delay,
        throttle=throttle,
    )
    prepared = await request.app.state.large_bodies.run(len(content), _prepare_content, request, about, content)
    return await _answer_one(request, caller, idempotency_key, content, prepared)


class PreparedMessage(NamedTuple):
    """A message that was read and checked: its columns, payload and headers as JSON text, and what encrypts it."""

    columns: dict[str, Any]
    on_conflict: OnConflict
    cipher: Cipher | None

    @property
    def stored(self) -> dict[str, Any]:
        """The columns as they are stored."""
        return self.columns if self.cipher is None else self.cipher.encrypt_columns(self.columns)


class PreparedBatch(NamedTuple):
    """Messages that were parsed and checked, and their JSON array for one INSERT."""

    messages: list[PreparedMessage]
    text: str


def _prepare_one(request: Request, caller: Caller, content: bytes) -> PreparedMessage:
    message = _read(request, PublishRequest, content)
    check_permission(caller, Role.PUBLISHER, message.topic)
    return _prepare(request, _with_trace(request, message.new()))


def _prepare_content(request: Request, about: NewMessage, content: bytes) -> PreparedMessage:
    message = replace(about, payload=_json(content)) if _is_json(request) else replace(about, body=content)
    return _prepare(request, _with_trace(request, message))


def _prepare(request: Request, message: NewMessage) -> PreparedMessage:
    return PreparedMessage(to_columns(message), message.on_conflict, request.app.state.cipher)


def _prepare_batch(request: Request, caller: Caller, content: bytes) -> PreparedBatch:
    messages = _read(request, PublishBatchRequest, content).messages
    for topic in {message.topic for message in messages}:
        check_permission(caller, Role.PUBLISHER, topic)
    news = [message.new() for message in messages]
    if TRACEPARENT in request.headers:
        news = [_with_trace(request, message) for message in news]
    prepared = [_prepare_numbered(request, number, message) for number, message in enumerate(news)]
    return PreparedBatch(prepared, "[" + ",".join([row_json(each.stored) for each in prepared]) + "]")


def _prepare_numbered(request: Request, number: int, message: NewMessage) -> PreparedMessage:
    try:
        return _prepare(request, message)
    except InvalidMessage as error:
        raise Problem(422, f"messages.{number}: {error}", "invalid_message") from None


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    # curl -d sends the form type for everything.
    return kind in ("application/json", "application/x-www-form-urlencoded") or kind.endswith("+json")


def _json(content: bytes) -> Any:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise Problem(422, f"body: invalid UTF-8 at byte {error.start}", "invalid_json") from None
    return jsonb.decode(text, "body")


def _read(request: Request, model: type[M], content: bytes) -> M:
    """Parse and validate a request body strictly."""
    if not _is_json(request):
        raise Problem(415, "the body must be application/json", "unsupported_media_type")
    try:
        return model.model_validate(_json(content))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise invalid_body(model, [{**each, "loc": ("body", *each["loc"])} for each in found]) from None


async def _publish(conn: Connection, prepared: PreparedMessage) -> dict[str, Any]:
    published = await publish_columns(conn, *prepared)
    return {"id": int(published) or None, "outcome": published.outcome}


async def _publish_many(conn: Connection, batch: PreparedBatch) -> dict[str, Any] | Raw:
    if all(is_a_row(each.columns, each.on_conflict) for each in batch.messages):
        ids = await _insert(conn, batch)
        if ids is not None:
            return Raw(f'{{"results":[{",".join([INSERTED.format(each) for each in ids])}]}}')
    # Each key is locked until the transaction ends: in one order, so that two requests do not deadlock.
    in_order = sorted(enumerate(batch.messages), key=lambda each: _key_of(each[1]))
    results = {number: await _publish(conn, message) for number, message in in_order}
    return {"results": [results[number] for number in range(len(results))]}


def _key_of(message: PreparedMessage) -> tuple[str, str]:
    return message.columns["topic"], message.columns.get("key", "")


async def _insert(conn: Connection, batch: PreparedBatch) -> list[int] | None:
    """Publish all in one statement; None: a policy has to be checked, and nothing was published.

    Raises:
        Problem: 503, a policy was added in the meantime; the transaction of the caller is rolled back.
    """
    rows = await (await conn.execute(INSERT, [batch.text])).fetchall()
    if not rows:
        return None
    if len(rows) != len(batch.messages):
        raise Problem(503, "a policy changed at this moment: try again", "try_again", {"Retry-After": "1"})
    return [found["id"] for found in rows]


def _with_trace(request: Request, message: NewMessage) -> NewMessage:
    """Add the trace context of the request to the message, unless its headers have their own."""
    traceparent = request.headers.get(TRACEPARENT)
    if traceparent is None or not VALID.fullmatch(traceparent):
        return message
    given = {name: value for name in (TRACEPARENT, TRACESTATE) if (value := request.headers.get(name))}
    return replace(message, headers=given | dict(message.headers or {}))


async def _answer_one(
    request: Request, caller: Caller, key: str | None, content: bytes, prepared: PreparedMessage
) -> Response:
    """Publish one message, batched with concurrent ones if possible."""
    # A batch that refuses a message must not refuse those of other requests.
    shared = is_a_row(prepared.columns, prepared.on_conflict) and "batch_id" not in prepared.columns
    if key is None and shared and len(content) <= LARGE_CHARS:
        published = await request.app.state.publish_batcher.publish(prepared.stored)
        if published is not None:
            return Response(INSERTED.format(published), 201, _location(published), media_type="application/json")
    return await _answer_once(request, caller, key, content, lambda conn: _publish(conn, prepared))


def _location(message_id: int | None) -> dict[str, str]:
    """Return the Location header of a message; none if it was dropped."""
    return {} if message_id is None else {"Location": f"/v1/messages/{message_id}"}


Operation = Callable[[Connection], Awaitable[dict[str, Any] | Raw]]


async def _answer_once(
    request: Request, caller: Caller, key: str | None, content: bytes, do: Operation, *, many: bool = False
) -> Response:
    """Do it, or return the stored response of the same key.

    Key, messages and response are stored in one transaction.
    """
    db = request.app.state.db
    if key is None:
        async with db.write(caller) if many else db.connection() as conn:
            done = await do(conn)
        return Response(dumps(done), 201, _location_of(done), media_type="application/json")
    async with db.write(caller) as conn:
        if found := await _begin(conn, caller, key, _digests(request, content)):
            place = _location_of(json.loads(found.answer))
            return Response(
                found.answer,
                found.status,
                {"Idempotent-Replayed": "true", **place},
                media_type="application/json",
            )
        done = await do(conn)
        text = dumps(done)
        await run_async(conn, end_request(caller.name, key, 201, text))
    return Response(text, 201, _location_of(done), media_type="application/json")


def _location_of(done: Any) -> dict[str, str]:
    return _location(done["id"]) if isinstance(done, dict) and "id" in done else {}


def _digests(request: Request, content: bytes) -> list[bytes]:
    """Return the digests that identify a request; the first one is stored."""
    digest = hashlib.sha256(f"{request.scope['path']}?{request.url.query}\n".encode() + content).digest()
    cipher: Cipher | None = request.app.state.cipher
    # The plain digest too: the request may be older than the encryption.
    return [digest] if cipher is None else [*cipher.request_digests(digest), digest]


async def _begin(conn: Connection, caller: Caller, key: str, digests: list[bytes]) -> SavedAnswer | None:
    """Begin an idempotent request; return its stored response, if there is one.

    Raises:
        Problem: 422, the key was used for another request.
    """
    # If the stored digest differs, it may have been made with another encryption key, or the request is another one.
    for digest in digests:
        with suppress(InvalidParameterValue):
            # A savepoint costs two round trips, and is only needed if there is another digest to try.
            async with conn.transaction() if len(digests) > 1 else nullcontext():
                return await run_async(conn, begin_request(caller.name, key, digest))
    raise Problem(
        422,
        "this Idempotency-Key was used for another request: use a new key for each request, "
        "and the same one only to send it again",
        "idempotency_key_reused",
    )
