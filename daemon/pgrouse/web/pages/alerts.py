"""Alerts: what was raised, the sinks that it is sent to, and what is silenced."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from pgrouse.client.calls.monitoring import alert
from pgrouse.client.queries.alert import find_incidents, find_sinks
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, Row, read_rows, run_write
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.page import view
from pgrouse.web.page.problems import KINDS, kind_name
from pgrouse.web.page.silence import add_silence, end_silence, read_silences
from pgrouse.web.page.view import Context, View

router = APIRouter()

MAX_ALERTS = 200
# Each sink has a row of its own of an alert.
MAX_READ = 1000
# The subject of the page that also shows alerts that are over.
ALL = "all"
# What needs somebody stands first.
STATES = ("firing", "resolved", "silenced", "over")
SINK_KINDS = {"ok": "good", "failing": "bad", "no deliverer": "bad"}
SILENCED_KINDS = [("", "any kind"), *((kind, kind_name(kind)) for kind in ("dead_message", *KINDS))]
Text = Annotated[str, Form(max_length=300)]


async def read_context(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read the alerts of the topics that the caller may see; the sinks only for callers of all topics."""
    alerts = await read_rows(conn, find_incidents(over=subject == ALL, most=MAX_READ, regexps=caller.regexps))
    return {
        "alerts": sorted(
            _by_incident(alerts)[:MAX_ALERTS], key=lambda row: (STATES.index(row["state"]), row["severity"])
        ),
        "sinks": await read_rows(conn, find_sinks()) if caller.sees_all else [],
        "silences": await read_silences(conn, caller),
        "shows_all": subject == ALL,
        "state_kind": _state_kind,
        "sink_kinds": SINK_KINDS,
        "subject": subject,
    }


def _by_incident(rows: list[Row]) -> list[Row]:
    """Return one row for each incident, with what its sinks were told; the latest first, as the rows are.

    Each sink counts from when it first heard of it: the numbers are those of the one that has heard most.
    """
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("kind", "topic", "result", "error_fingerprint"))
        found.setdefault(key, []).append(row)
    return [_merged(each) for each in found.values()]


def _merged(rows: list[Row]) -> Row:
    told = [row["notified_at"] for row in rows if row["notified_at"] is not None]
    return rows[0] | {
        "state": min((row["state"] for row in rows), key=STATES.index),
        "title": f"{rows[0]['result']} messages" if rows[0]["result"] else kind_name(rows[0]["kind"]),
        "count": max(row["count"] for row in rows),
        "pending": max(row["pending"] for row in rows),
        "first_at": min(row["first_at"] for row in rows),
        "notified_at": max(told, default=None),
        "sinks": sorted(row["sink"] for row in rows),
    }


def _state_kind(row: Row) -> str:
    """Return the colour of its state: of one that fires, by its severity."""
    if row["state"] == "firing":
        return "bad" if row["severity"] == "page" else "warn"
    return "good" if row["state"] == "resolved" else ""


VIEW = View("alerts", read_context, parts=("alerts", "sinks", "silences"))


@router.get("/alerts")
async def alerts(request: Request, caller: Viewer, show: str = "") -> Response:
    """Show the page."""
    return await view.show(request, caller, VIEW, ALL if show == ALL else "", kinds=SILENCED_KINDS)


@router.post("/alerts/silence")
async def silence(
    request: Request,
    caller: Operator,
    lasts: Annotated[str, Form(max_length=50, alias="for")] = "",
    kind: Text = "",
    topic: Text = "",
    fingerprint: Text = "",
    reason: Annotated[str, Form(max_length=1000)] = "",
    subject: Text = "",
) -> Response:
    """Silence the alerts that fit all that is given."""
    given = {"kind": kind.strip() or None, "topic": topic.strip() or None, "fingerprint": fingerprint.strip() or None}
    await add_silence(request, caller, lasts=lasts, reason=reason, **given)
    return await view.action_result(request, caller, VIEW, f"Silenced for {lasts}.", subject)


@router.post("/alerts/unsilence")
async def unsilence(
    request: Request, caller: Operator, silence_id: Annotated[int, Form(alias="id", ge=1, lt=2**63)], subject: Text = ""
) -> Response:
    """End a silence."""
    await end_silence(request, caller, silence_id)
    return await view.action_result(request, caller, VIEW, "Its alerts are sent again.", subject)


@router.post("/alerts/replay")
async def replay(request: Request, caller: Operator, sink: Text, subject: Text = "") -> Response:
    """Send the messages of the last hour to a sink once more."""
    check_permission(caller, Role.OPERATOR)
    count = await run_write(request, caller, alert.replay_alerts(sink))
    text = (
        f"{count} message{'' if count == 1 else 's'} will be sent again."
        if count
        else "No message was sent to it in the last hour."
    )
    return await view.action_result(request, caller, VIEW, text, subject, kind="" if count else "bad")
