"""Schedules: messages that publish themselves by the clock."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any
from urllib.parse import quote

import psycopg
from fastapi import APIRouter, Form, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.calls import schedule as calls
from pgrouse.client.message_state import DEAD
from pgrouse.client.queries import schedule as queries
from pgrouse.client.queries.schedule import PastRun, Schedule
from pgrouse.config.duration import parse
from pgrouse.config.validation_text import describe
from pgrouse.errors import PgrouseError
from pgrouse.values.jsonb import Raw, decode, encode
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, Row, reading, run_write
from pgrouse.web.access.redaction import differs, shown_json
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.http.problem import Problem, database_problem
from pgrouse.web.page import view
from pgrouse.web.page.page import render
from pgrouse.web.page.view import Context, View
from pgrouse.web.v1.schedule import ScheduleChangeRequest, columns, operate, read_visible

router = APIRouter()

MAX_ROWS = 500
NEXT = 5
RUNS = 25
# How many of each the list shows.
SPARK_RUNS = 12
# What the messages of a schedule may have instead of their topic.
OWN_SETTINGS = ("max_attempts", "timeout", "backoff", "retention")
Text = Annotated[str, Form(max_length=200)]

# Longer payloads and headers are not shown whole, and such a payload is not edited here.
MAX_CHARACTERS = 10_000
STATE_KINDS = {"on": "good", "paused": "warn", "failing": "bad", "over": ""}


async def read_context(conn: Connection, caller: Caller, _subject: str) -> Context:
    """Read the schedules of the topics that the caller may see."""
    found = await run_async(conn, queries.list_schedules(topics=caller.limited_to, most=MAX_ROWS))
    runs: dict[str, list[PastRun]] = {each.name: [] for each in found}
    for run in await run_async(conn, queries.runs_of(list(runs), SPARK_RUNS)):
        runs[run.schedule].insert(0, run)
    return {"schedules": found, "kinds": STATE_KINDS, "runs": runs, "run_kind": run_kind, "run_word": run_word}


async def read_schedule(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read one schedule: its next runs, and what it did."""
    found = await read_visible(conn, caller, Role.VIEWER, subject)
    return {
        "schedule": _shown(caller, found),
        "kinds": STATE_KINDS,
        "ticks": await _ticks_of(conn, found) if found.paused_at is None else [],
        "runs": await run_async(conn, queries.last_runs(subject, RUNS)),
        "run_kind": run_kind,
        "run_word": run_word,
    }


def run_word(run: PastRun) -> str:
    """Say what became of a run: the state of its message, or why there is none."""
    return (run.state or run.outcome).replace("_", " ")


def run_kind(run: PastRun) -> str:
    """Return the colour of a run."""
    if run.outcome != "published":
        return {"dropped": "bad", "missed": "warn", "paused": "warn"}.get(run.outcome, "")
    return "bad" if run.state in DEAD else {"success": "good", "retrying": "warn"}.get(run.state or "", "info")


def _shown(caller: Caller, found: Schedule) -> Row:
    payload = shown_json(caller, found.topic, "payload", found.payload_json) or ""
    headers = shown_json(caller, found.topic, "headers", found.headers_json)
    return asdict(found) | {
        "payload": payload[:MAX_CHARACTERS],
        "is_cut": len(payload) > MAX_CHARACTERS,
        # What only is shown must not be saved.
        "is_redacted": differs(found.payload_json, payload) or differs(found.headers_json, headers),
        "headers": headers,
        "headers_shown": headers and headers[:MAX_CHARACTERS],
    }


async def _ticks(conn: Connection, cron: str, time_zone: str) -> list[Row]:
    """Return the next ticks, each with the time as the clocks of the time zone show it."""
    ticks = await run_async(conn, calls.next_ticks(cron, time_zone, NEXT))
    local = await run_async(conn, queries.local_times(ticks, time_zone))
    return [{"at": at, "local": text} for at, text in zip(ticks, local, strict=True)]


async def _ticks_of(conn: Connection, found: Schedule) -> list[Row]:
    try:
        async with conn.transaction():
            return await _ticks(conn, found.cron, found.time_zone)
    except psycopg.errors.InvalidParameterValue:  # its last_error says why
        return []


VIEW = View("schedules", read_context, parts=("list",))
ONE = View("schedules/schedule", read_schedule, parts=("facts", "ticks", "runs"))


@router.get("/schedules")
async def schedules(request: Request, caller: Viewer) -> Response:
    """Show the page."""
    return await view.show(request, caller, VIEW)


@router.get("/schedules/next")
async def preview(request: Request, caller: Viewer, cron: str = "", time_zone: str = "UTC") -> Response:
    """Show when a cron expression would run, while the user types it."""
    ticks: list[Row] = []
    error = ""
    if cron.strip():
        try:
            async with reading(request) as conn:
                ticks = await _ticks(conn, cron.strip()[:200], time_zone.strip()[:100] or "UTC")
        except psycopg.DataError as exc:
            error = database_problem(exc).detail
    return render(request, "schedules/next.html", ticks=ticks, error=error, cron=cron.strip())


@router.get("/schedules/{name}")
async def schedule(request: Request, name: str, caller: Viewer) -> Response:
    """Show one schedule."""
    return await view.show(request, caller, ONE, name)


class ScheduleForm(BaseModel):
    """A schedule as it was typed."""

    model_config = ConfigDict(str_strip_whitespace=True)

    name: str = Field("", max_length=200)
    cron: str = Field(max_length=200)
    topic: str = Field(max_length=200)
    time_zone: str = Field("UTC", max_length=200)
    payload: str = Field("", max_length=1_000_000)
    headers: str = Field("", max_length=100_000)
    channel: str = Field("", max_length=200)
    key: str = Field("", max_length=200)
    jitter: str = Field("", max_length=200)
    missed: str = Field("once", max_length=200)
    missed_limit: int = Field(100, ge=1, le=1000)
    while_paused: str = Field("publish", max_length=200)
    priority: int = Field(5, ge=0, le=9)
    max_attempts: str = Field("", max_length=200)
    timeout: str = Field("", max_length=200)
    backoff: str = Field("", max_length=1000)
    retention: str = Field("", max_length=200)

    def values(self) -> dict[str, Any]:
        """Return the columns; without a payload there is none.

        Raises:
            Problem: 422, the payload, the headers, the jitter or a setting of the messages cannot be read.
        """
        given = self.model_dump(exclude={"name", "payload"}) | {
            "time_zone": self.time_zone or "UTC",
            "headers": _json("headers", self.headers) if self.headers else None,
            "channel": self.channel or None,
            "key": self.key or None,
            "jitter": _jitter(self.jitter),
            **self._own_policy(),
        }
        return given | ({"payload": _json("payload", self.payload)} if self.payload else {})

    def _own_policy(self) -> dict[str, Any]:
        """Return what its messages have instead of their topic; None where nothing was typed."""
        typed = {name: text for name in OWN_SETTINGS if (text := getattr(self, name))}
        try:
            given: dict[str, Any] = {
                name: decode(text, name) if name == "max_attempts" or text.startswith("{") else text
                for name, text in typed.items()
            }
            read = ScheduleChangeRequest.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise Problem(422, f"{first['loc'][0]}: {describe(first)}", "invalid_value") from None
        except PgrouseError as error:
            raise Problem(422, str(error), "invalid_value") from None
        return columns(read, OWN_SETTINGS)


@router.post("/schedules")
async def add(request: Request, caller: Operator, form: Annotated[ScheduleForm, Form()]) -> Response:
    """Add a schedule."""
    name, values = form.name, form.values()
    check_permission(caller, Role.OPERATOR, values["topic"])
    try:
        await run_write(request, caller, queries.add_schedule(values | {"name": name}))
    except psycopg.errors.UniqueViolation:
        raise Problem(409, f"there is a schedule {name} already: choose another name", "already_there") from None
    return await view.redirect(request, f"/schedules/{quote(name, safe='')}")


@router.post("/schedules/{name}")
async def edit(request: Request, name: str, caller: Operator, form: Annotated[ScheduleForm, Form()]) -> Response:
    """Change it; without a payload the payload stays."""
    values = form.values()
    check_permission(caller, Role.OPERATOR, values["topic"])
    await operate(request, caller, name, queries.change_schedule(name, values))
    return await view.redirect(request, f"/schedules/{quote(name, safe='')}")


def _json(name: str, text: str) -> str:
    try:
        return encode(Raw(text), name)
    except (ValueError, PgrouseError) as error:
        raise Problem(422, str(error), f"invalid_{name}") from None


def _jitter(text: str) -> Any:
    try:
        return parse(text or "0")
    except ValueError as error:
        raise Problem(422, f"jitter: {error}", "invalid_value") from None


@router.post("/schedules/{name}/run")
async def run_now(request: Request, name: str, caller: Operator, seen_on: Text = "schedule") -> Response:
    """Publish its message now."""
    ran = await operate(request, caller, name, calls.run_schedule(name))
    if ran.outcome == "published":
        return await _action_result(request, caller, seen_on, name, f"Message {ran.id} is published.")
    why = (
        "the topic is full and drops new messages"
        if ran.id is None
        else f"message {ran.id} has the key of this schedule"
    )
    return await _action_result(request, caller, seen_on, name, f"Nothing was published: {why}.", kind="bad")


@router.post("/schedules/{name}/pause")
async def pause(
    request: Request,
    name: str,
    caller: Operator,
    reason: Annotated[str, Form(max_length=500)] = "",
    seen_on: Text = "schedule",
) -> Response:
    """Stop it until it is resumed."""
    await operate(request, caller, name, calls.pause_schedule(name, reason.strip() or None))
    return await _action_result(request, caller, seen_on, name, f"{name} is paused.")


@router.post("/schedules/{name}/resume")
async def resume(request: Request, name: str, caller: Operator, seen_on: Text = "schedule") -> Response:
    """Let it go on with its next tick."""
    await operate(request, caller, name, calls.resume_schedule(name))
    return await _action_result(request, caller, seen_on, name, f"{name} is resumed.")


@router.post("/schedules/{name}/remove")
async def remove(request: Request, name: str, caller: Operator) -> Response:
    """Take it away. What it has published stays."""
    await operate(request, caller, name, queries.delete_schedule(name))
    return await view.redirect(request, "/schedules")


async def _action_result(
    request: Request, caller: Caller, seen_on: str, name: str, text: str, kind: str = ""
) -> Response:
    if seen_on == VIEW.name:
        return await view.action_result(request, caller, VIEW, text, kind=kind)
    return await view.action_result(request, caller, ONE, text, name, kind=kind)
