"""Publish: a form for one message."""

from __future__ import annotations

from typing import Any

import psycopg
from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from pgrouse.config.validation_text import describe
from pgrouse.errors import InvalidMessage, PgrouseError
from pgrouse.publishing.new_message import NewMessage, to_columns
from pgrouse.publishing.publish import publish_columns
from pgrouse.values import jsonb
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import reading, writing
from pgrouse.web.access.security import Publisher, check_permission
from pgrouse.web.http.problem import Problem, to_problem
from pgrouse.web.page.page import render
from pgrouse.web.search.message_counts import read_topic_counts
from pgrouse.web.v1.messages.publish import PublishRequest

router = APIRouter()

FIELDS = (
    "topic", "payload", "key", "channel", "priority", "delay", "debounce", "max_delay", "throttle",
    "max_attempts", "timeout", "backoff", "retention", "headers"
)  # fmt: skip
MAX_CHARS = 1_000_000
SERVER_ERROR = 500


@router.get("/messages/new")
async def form(request: Request, caller: Publisher) -> Response:
    """Show the form."""
    typed = dict.fromkeys(FIELDS, "") | {"topic": request.query_params.get("topic", "")[:200]}
    return await _show(request, caller, typed)


async def _show(request: Request, caller: Caller, typed: dict[str, str], error: str = "") -> Response:
    async with reading(request) as conn:
        known = [row["topic"] for row in (await read_topic_counts(conn, caller)).rows]
    shown = render(request, "messages/publish.html", typed=typed, known_topics=known, error=error)
    shown.status_code = 422 if error else 200
    return shown


@router.post("/messages/new")
async def publish(request: Request, caller: Publisher) -> Response:
    """Publish what was typed, and show the message; what was refused can be typed again."""
    sent = await request.form()
    typed = {name: str(sent.get(name) or "") for name in FIELDS}
    try:
        message = _read(typed)
        check_permission(caller, Role.PUBLISHER, message.topic)
        async with writing(request, caller) as conn:
            published = await publish_columns(conn, to_columns(message), message.on_conflict, request.app.state.cipher)
    except (PgrouseError, Problem, psycopg.Error) as error:
        problem = to_problem(error)
        if problem.status >= SERVER_ERROR:
            raise
        return await _show(request, caller, typed, problem.detail)
    request.app.state.live_updates.notify()
    if not published:
        return await _show(request, caller, typed, "It was not published: the topic is full, and drops what is new.")
    return RedirectResponse(f"/messages/{int(published)}", 303)


def _read(typed: dict[str, str]) -> NewMessage:
    """Return the message.

    Raises:
        InvalidMessage: a value is none that a message takes.
    """
    for name, text in typed.items():
        if len(text) > MAX_CHARS:
            raise InvalidMessage(
                f"{name} has {len(text):,} characters, {MAX_CHARS:,} is the most here: use the HTTP API"
            )
    given: dict[str, Any] = {name: value for name in FIELDS if (value := typed[name].strip())}
    # Blanks may belong to a key or a channel.
    given |= {name: typed[name] for name in ("key", "channel") if name in given}
    for name in ("payload", "headers", "priority", "max_attempts"):
        if name in given:
            given[name] = jsonb.decode(given[name], name)
    # A kind, or an object with its parts.
    if given.get("backoff", "").startswith("{"):
        given["backoff"] = jsonb.decode(given["backoff"], "backoff")
    try:
        return PublishRequest.model_validate(given).new()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidMessage(f"{where + ': ' if where else ''}{describe(first)}") from None
