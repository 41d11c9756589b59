"""Alerts: the incidents, the sinks that they are sent to, and what is silenced."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from pgrouse.alerts.notice import dashboard_path
from pgrouse.client.calls.monitoring import alert
from pgrouse.client.queries.alert import find_sinks
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, Row, read_rows, run_write
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.page import view
from pgrouse.web.page.problems import KINDS, kind_name
from pgrouse.web.page.silence import add_silence, end_silence, read_silences
from pgrouse.web.page.view import Context, View
from pgrouse.web.search.search import Search

router = APIRouter()

MAX_INCIDENTS = 200
HOUR = timedelta(hours=1)
# The subject of the page that also shows incidents that are over.
ALL = "all"
SINK_KINDS = {"ok": "good", "failing": "bad", "no deliverer": "bad"}
SILENCED_KINDS = [("", "any kind"), *((kind, kind_name(kind)) for kind in ("dead_message", *KINDS))]
Text = Annotated[str, Form(max_length=300)]


async def read_context(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read the incidents of the topics that the caller may see; the sinks only for callers of all topics."""
    found = await read_rows(conn, alert.incidents(caller.topics, subject == ALL, MAX_INCIDENTS))
    return {
        "incidents": [_presentation(row) for row in found if caller.may(Role.VIEWER, row["topic"])],
        "sinks": await read_rows(conn, find_sinks()) if caller.sees_all else [],
        "silences": await read_silences(conn, caller),
        "shows_all": subject == ALL,
        "state_kind": _state_kind,
        "sink_kinds": SINK_KINDS,
        "subject": subject,
    }


def _presentation(row: Row) -> Row:
    title = f"{row['result'].replace('_', ' ')} messages" if row["result"] else kind_name(row["kind"])
    return row | {"title": title, "messages_path": _messages_path(row)}


def _messages_path(row: Row) -> str:
    """Return the page that shows what it is about; of one that is over, what ended in its time."""
    if row["state"] != "over" or row["kind"] not in ("dead_message", "dead_rate", "breaker"):
        return dashboard_path(row | {"total": row["count"]})
    times = {"since": (row["began_at"] - HOUR).isoformat(), "until": row["ended_at"].isoformat()}
    return "/messages?" + Search(topic=row["topic"] or "", state="ended", **times).query()


def _state_kind(row: Row) -> str:
    """Return the colour of its state: of one that fires, by its severity."""
    if row["state"] == "firing":
        return "bad" if row["severity"] == "page" else "warn"
    return ""


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
