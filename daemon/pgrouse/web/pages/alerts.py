"""Alerts: what was raised, the sinks that it is sent to, and what is silenced."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from pgrouse.client.calls.monitoring import alert
from pgrouse.client.queries.alert import find_incidents, find_sinks
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, read_rows, run_write
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.page import view
from pgrouse.web.page.problems import KINDS
from pgrouse.web.page.silence import add_silence, end_silence, read_silences
from pgrouse.web.page.view import Context, View

router = APIRouter()

MAX_ALERTS = 200
# The subject of the page that also shows alerts that are over.
ALL = "all"
# What needs somebody stands first.
STATE_KINDS = {"firing": "bad", "resolved": "good", "silenced": "", "over": ""}
SINK_KINDS = {"ok": "good", "failing": "bad", "no deliverer": "bad"}
SILENCED_KINDS = [("", "any kind"), *((kind, kind.replace("_", " ")) for kind in ("dead_message", *KINDS))]
Text = Annotated[str, Form(max_length=300)]


async def read_context(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read the alerts of the topics that the caller may see; the sinks only for callers of all topics."""
    alerts = await read_rows(conn, find_incidents(over=subject == ALL, most=MAX_ALERTS))
    visible = [row for row in alerts if caller.may(Role.VIEWER, row["topic"])]
    return {
        "alerts": sorted(visible, key=lambda row: list(STATE_KINDS).index(row["state"])),
        "sinks": await read_rows(conn, find_sinks()) if caller.sees_all else [],
        "silences": await read_silences(conn, caller),
        "shows_all": subject == ALL,
        "state_kinds": STATE_KINDS,
        "sink_kinds": SINK_KINDS,
        "subject": subject,
    }


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
