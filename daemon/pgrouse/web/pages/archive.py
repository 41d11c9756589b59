"""Archive: what is kept of messages that ended, for how long, and the exports that read it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.calls.export import delete_export, list_exports
from pgrouse.web import view
from pgrouse.web.caller import Caller, Role
from pgrouse.web.database_pool import Connection
from pgrouse.web.security import check_permission, require_role
from pgrouse.web.view import Context, View

router = APIRouter(include_in_schema=False)

Viewer = Annotated[Caller, Depends(require_role(Role.VIEWER))]
Operator = Annotated[Caller, Depends(require_role(Role.OPERATOR))]

MAX_DAYS = 100

# Sizes are those of the files, with indexes and long values. A day goes when it is older than the longest retention.
DAYS = b"""
  SELECT d.day, nullif(c.reltuples, -1)::bigint AS rows, pg_relation_size(c.oid) > 0 AS is_filled, pg_total_relation_size(c.oid) AS bytes,
         (d.day + 1)::timestamp AT TIME ZONE 'UTC' + (SELECT max(t.retention) FROM messages.topic AS t) AS due_at
  FROM (
    SELECT i.inhrelid AS oid, c.relname AS name,
           CASE WHEN c.relname ~ '^message_archive_[0-9]{8}$' THEN to_date(right(c.relname, 8), 'YYYYMMDD') END AS day
    FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'messages.message_archive'::regclass
  ) AS d
  JOIN pg_class AS c ON c.oid = d.oid
  WHERE d.day IS NULL OR d.day <= (messages.now() AT TIME ZONE 'UTC')::date
  ORDER BY d.day DESC NULLS LAST"""
RETENTION = b"SELECT t.topic, t.retention FROM messages.topic AS t WHERE t.retention IS NOT NULL ORDER BY t.topic <> '*', t.topic"


async def read_context(conn: Connection, caller: Caller, _subject: str) -> Context:
    """Read the days, the retention of each topic and the exports; for callers of all topics."""
    check_permission(caller, Role.VIEWER)
    # The default partition, which is of no day, is empty unless the maintenance has not run for a week.
    days = [row for row in await (await conn.execute(DAYS)).fetchall() if row["day"] is not None or row["is_filled"]]
    return {
        "days": days[:MAX_DAYS],
        "older": days[MAX_DAYS:],
        "has_messages": any(row["is_filled"] for row in days),
        "bytes": sum(row["bytes"] for row in days),
        "one_day_ago": datetime.now(UTC) - timedelta(days=1),
        "most": max((row["bytes"] for row in days), default=1),
        "retention": await (await conn.execute(RETENTION)).fetchall(),
        "exports": await run_async(conn, list_exports()),
    }


VIEW = View("archive", read_context, parts=("exports",))


@router.get("/archive")
async def archive(request: Request, caller: Viewer) -> Response:
    """Show the page."""
    return await view.show(request, caller, VIEW)


@router.post("/archive/exports/delete")
async def delete(request: Request, caller: Operator, name: Annotated[str, Form(max_length=200)]) -> Response:
    """Forget an export, so that the retention does not wait for it."""
    check_permission(caller, Role.OPERATOR)
    async with request.app.state.db.write(caller) as conn:
        was_known = await run_async(conn, delete_export(name))
    text = f"The export {name} is deleted." if was_known else f"There was no export {name}."
    return await view.action_result(request, caller, VIEW, text)
