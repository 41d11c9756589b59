"""Publishing: one message, many at once, or whatever a request carries as the payload. With an `Idempotency-Key` it is done once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from fastapi import APIRouter, Header, Request
from psycopg.errors import InvalidParameterValue
from pydantic import Field, TypeAdapter, ValidationError, model_validator
from starlette.responses import Response

from pgrouse import jsonb

from pgrouse.publishing import publish as publishing
from pgrouse.errors import PublishRefused
from pgrouse.jsonb import Raw
from pgrouse.publishing.new_message import MOST_BEFORE, AfterFailed, NewMessage, OnConflict, row
from pgrouse.publishing.trace_context import TRACEPARENT, TRACESTATE, VALID
from pgrouse.web.caller import Caller, Role
from pgrouse.web.database_pool import Connection
from pgrouse.web.security import allow
from pgrouse.web.publish_batcher import LARGE_CHARS
from pgrouse.web.problem import Problem
from pgrouse.web.publish_rows import INSERT, record
from pgrouse.web.v1.response import dumps
from pgrouse.web.v1.caller import Publisher
from pgrouse.web.v1.model import MOST, REFUSALS, Base64, Body, Id, Label, Moment, Shape, Topic, Wait

if TYPE_CHECKING:
    from pgrouse.crypto.cipher import Cipher

router = APIRouter(prefix="/v1", tags=["publish"], responses=REFUSALS)

T = TypeVar("T")
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="Sent again with the same key within 24 hours, the request gets the first answer and does nothing.",
    ),
]


class Message(Body):
    """A message to publish: a payload, or bytes as `body`."""

    topic: Topic
    payload: Any = None
    """Any JSON value."""
    body: Base64 | None = None
    """Bytes in Base64, instead of a payload."""
    headers: dict[str, Any] | None = None
    """What is about the message rather than in it."""
    key: Label | None = None
    """Deduplication key inside the topic."""
    channel: Label | None = None
    """Fairness and limit group inside the topic."""
    priority: int | None = Field(default=None, ge=0, le=9)
    """0 first, 9 last; 5 unless given."""
    delay: Wait | None = None
    """How long it is not yet available."""
    available_at: Moment | None = None
    """Or when it becomes available."""
    ttl: Wait | None = None
    """How long it may wait to be worked."""
    max_attempts: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Instead of the topic's; 0 is no limit."""
    on_conflict: OnConflict = "error"
    """If a message with this key waits already: `error`, `replace` it, `ignore` this one, `append` the payload to it."""
    after: list[Id] | None = Field(default=None, max_length=MOST_BEFORE)
    """Ids of messages: it is not claimed before all of them ended with success."""
    after_failed: AfterFailed = "hold"
    """If one of those ends otherwise: `hold` it until that is redriven, `cancel` it too, or `run` it all the same."""

    @model_validator(mode="after")
    def _carries_something(self) -> Message:
        if not {"payload", "body"} & self.model_fields_set:
            raise ValueError("there is no payload: give one, null if that is meant, or a body")
        return self

    def new(self) -> NewMessage:
        """Return it as the publisher's side knows it."""
        return NewMessage(**{name: getattr(self, name) for name in self.model_fields_set})


class Messages(Body):
    """Messages that are published all or none; those that a full topic drops are told."""

    messages: list[Message] = Field(min_length=1, max_length=MOST)


class Published(Shape):
    """What became of a message."""

    id: int | None
    """The message that stands for it; null if it was dropped."""
    what: str
    """inserted, replaced, ignored, appended, held, or dropped."""


class PublishedMany(Shape):
    """What became of each, in their order."""

    results: list[Published]


INSERTED = '{{"id":{},"what":"inserted"}}'
ONE, MANY = TypeAdapter(Message), TypeAdapter(Messages)
EXAMPLE = {"topic": "orders.created", "payload": {"id": 7, "total": 9.5}, "key": "order-7"}


def _described(model: type[Body], example: Any) -> dict[str, Any]:
    """Describe a body that the route reads by itself."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}


@router.post(
    "/messages",
    status_code=201,
    response_model=Published,
    openapi_extra=_described(Message, EXAMPLE),
    summary="Publish a message",
)
async def publish(request: Request, caller: Publisher, idempotency_key: IdempotencyKey = None) -> Response:
    """Publish one message; it is stored when the answer comes."""
    content = await request.body()
    ready = await request.app.state.aside.run(len(content), _ready_one, request, caller, content)
    return await _answer_one(request, caller, idempotency_key, content, ready)


@router.post(
    "/messages/batch",
    status_code=201,
    response_model=PublishedMany,
    openapi_extra=_described(Messages, {"messages": [EXAMPLE]}),
    summary="Publish many messages",
)
async def publish_many(request: Request, caller: Publisher, idempotency_key: IdempotencyKey = None) -> Response:
    """Publish up to 1,000 messages in one transaction."""
    content = await request.body()
    batch = await request.app.state.aside.run(len(content), _ready_batch, request, caller, content)
    return await _answer_once(
        request, caller, idempotency_key, content, lambda conn: _publish_many(conn, batch), many=True
    )


ANY_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {}, "example": {"id": 7}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.post(
    "/topics/{topic}/messages",
    status_code=201,
    response_model=Published,
    openapi_extra=ANY_BODY,
    summary="Publish a payload",
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
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Publish what the request carries: JSON as the payload, everything else as bytes. For webhooks and simple clients."""
    allow(caller, Role.PUBLISHER, topic)
    content = await request.body()
    about = NewMessage(
        topic=topic, key=key, channel=channel, priority=priority, delay=delay, ttl=ttl, on_conflict=on_conflict
    )
    ready = await request.app.state.aside.run(len(content), _ready_content, request, about, content)
    return await _answer_one(request, caller, idempotency_key, content, ready)


class Ready(NamedTuple):
    """A message that was read and checked: its columns, payload and headers as JSON text, and what encrypts it."""

    columns: dict[str, Any]
    on_conflict: OnConflict
    cipher: Cipher | None

    @property
    def stored(self) -> dict[str, Any]:
        """The columns as they are stored."""
        return self.columns if self.cipher is None else self.cipher.sealed(self.columns)


class Batch(NamedTuple):
    """Messages that were read and checked, and all of them as one value."""

    messages: list[Ready]
    text: str


def _ready_one(request: Request, caller: Caller, content: bytes) -> Ready:
    message = _read(request, ONE, content)
    allow(caller, Role.PUBLISHER, message.topic)
    return _ready(request, _traced(request, message.new()))


def _ready_content(request: Request, about: NewMessage, content: bytes) -> Ready:
    message = replace(about, payload=_json(content)) if _is_json(request) else replace(about, body=content)
    return _ready(request, _traced(request, message))


def _ready(request: Request, message: NewMessage) -> Ready:
    return Ready(row(message), message.on_conflict, request.app.state.cipher)


def _ready_batch(request: Request, caller: Caller, content: bytes) -> Batch:
    messages = _read(request, MANY, content).messages
    for topic in {message.topic for message in messages}:
        allow(caller, Role.PUBLISHER, topic)
    news = [message.new() for message in messages]
    if TRACEPARENT in request.headers:
        news = [_traced(request, message) for message in news]
    ready = [_checked(request, number, message) for number, message in enumerate(news)]
    return Batch(ready, "[" + ",".join([record(each.stored) for each in ready]) + "]")


def _checked(request: Request, number: int, message: NewMessage) -> Ready:
    try:
        return _ready(request, message)
    except PublishRefused as error:
        raise Problem(422, f"messages.{number}: {error}", "invalid_message") from None


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    # What curl -d says of everything; a form is never meant.
    return kind in ("application/json", "application/x-www-form-urlencoded") or kind.endswith("+json")


def _json(content: bytes) -> Any:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise Problem(422, f"body: no UTF-8 at byte {error.start}", "invalid_json") from None
    return jsonb.decode(text, "body")


def _read(request: Request, kind: TypeAdapter[T], content: bytes) -> T:
    """Read a body, more strictly than a parser does that only wants to succeed."""
    if not _is_json(request):
        raise Problem(415, "the body must be application/json", "unsupported_media_type")
    try:
        return kind.validate_python(_json(content))
    except ValidationError as error:
        faults = [
            {"where": ".".join(map(str, ("body", *each["loc"]))), "what": each["msg"].removeprefix("Value error, ")}
            for each in error.errors(include_url=False, include_input=False, include_context=False)[:100]
        ]
        raise Problem(422, f"{faults[0]['where']}: {faults[0]['what']}", "invalid_request", errors=faults) from None


async def _publish(conn: Connection, ready: Ready) -> dict[str, Any]:
    published = await publishing.publish_row(conn, *ready)
    return {"id": int(published) or None, "what": published.what}


async def _publish_many(conn: Connection, batch: Batch) -> dict[str, Any] | Raw:
    if all(each.on_conflict == "error" and "after" not in each.columns for each in batch.messages):
        ids = await _insert(conn, batch)
        if ids is not None:
            return Raw(f'{{"results":[{",".join([INSERTED.format(each) for each in ids])}]}}')
    return {"results": [await _publish(conn, each) for each in batch.messages]}


async def _insert(conn: Connection, batch: Batch) -> list[int] | None:
    """Publish all in one statement; None: some policy has to be looked at, and nothing was published.

    Raises:
        Problem: 503, a policy came in the midst of it; the caller's transaction takes back what was done.
    """
    rows = await (await conn.execute(INSERT, [batch.text])).fetchall()
    if not rows:
        return None
    if len(rows) != len(batch.messages):
        raise Problem(503, "a policy changed at this moment: try again", "try_again", {"Retry-After": "1"})
    return [found["id"] for found in rows]


def _traced(request: Request, message: NewMessage) -> NewMessage:
    """Let the message carry the trace of the request, unless its own headers say otherwise."""
    traceparent = request.headers.get(TRACEPARENT)
    if traceparent is None or not VALID.fullmatch(traceparent):
        return message
    given = {name: value for name in (TRACEPARENT, TRACESTATE) if (value := request.headers.get(name))}
    return replace(message, headers=given | dict(message.headers or {}))


async def _answer_one(request: Request, caller: Caller, key: str | None, asked: bytes, ready: Ready) -> Response:
    """Publish one message, together with others that came at the same time if it can be."""
    by_itself = ready.on_conflict != "error" or "after" in ready.columns
    if key is None and not by_itself and len(asked) <= LARGE_CHARS:
        published = await request.app.state.press.publish(ready.stored)
        if published is not None:
            return Response(INSERTED.format(published), 201, _place(published), media_type="application/json")
    return await _answer_once(request, caller, key, asked, lambda conn: _publish(conn, ready))


def _place(message_id: int | None) -> dict[str, str]:
    """Return where a message is to be found; one that was dropped is nowhere."""
    return {} if message_id is None else {"Location": f"/v1/messages/{message_id}"}


Doing = Callable[[Connection], Awaitable[dict[str, Any] | Raw]]


async def _answer_once(
    request: Request, caller: Caller, key: str | None, asked: bytes, do: Doing, *, many: bool = False
) -> Response:
    """Do it, or give the answer that was given before: key, deed and answer are one transaction."""
    db = request.app.state.db
    if key is None:
        async with db.write(caller) if many else db.connection() as conn:
            done = await do(conn)
        return Response(dumps(done), 201, _place_of(done), media_type="application/json")
    async with db.write(caller) as conn:
        if found := await _begin(conn, caller, key, _digests(request, asked)):
            place = _place_of(json.loads(found["answer"]))
            return Response(
                found["answer"],
                found["status"],
                {"Idempotent-Replayed": "true", **place},
                media_type="application/json",
            )
        done = await do(conn)
        text = dumps(done)
        await conn.execute(b"SELECT messages.end_request(%s, %s, %s, %s)", [caller.name, key, 201, text])
    return Response(text, 201, _place_of(done), media_type="application/json")


def _place_of(done: Any) -> dict[str, str]:
    return _place(done["id"]) if isinstance(done, dict) and "id" in done else {}


def _digests(request: Request, asked: bytes) -> list[bytes]:
    """Return what a request may be known by; the first is what is kept."""
    digest = hashlib.sha256(f"{request.scope['path']}?{request.url.query}\n".encode() + asked).digest()
    cipher: Cipher | None = request.app.state.cipher
    # The last one: it came before anything was encrypted.
    return [digest] if cipher is None else [*cipher.digests(digest), digest]


async def _begin(conn: Connection, caller: Caller, key: str, digests: list[bytes]) -> dict[str, Any] | None:
    """Begin a request that is done once; return the answer that was given before, if one was."""
    first, *others = digests
    if not others:
        return await _begin_as(conn, caller, key, first)
    try:
        async with conn.transaction():
            return await _begin_as(conn, caller, key, first)
    except InvalidParameterValue:
        # It was begun as another one: under a key that is the first by name no more, if it is not another indeed.
        for digest in others:
            with suppress(InvalidParameterValue):
                async with conn.transaction():
                    return await _begin_as(conn, caller, key, digest)
        raise


async def _begin_as(conn: Connection, caller: Caller, key: str, digest: bytes) -> dict[str, Any] | None:
    begun = await conn.execute(
        b"SELECT status, answer FROM messages.begin_request(%s, %s, %s)", [caller.name, key, digest]
    )
    return await begun.fetchone()
