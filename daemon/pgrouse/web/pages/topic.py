"""A topic: how it goes, its channels, its policy."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import psycopg
from fastapi import APIRouter, Depends, Form, Request
from starlette.responses import Response

from pgrouse.client.calls.stats import latency, throughput
from pgrouse.client.subscription_query import SUBSCRIBE, SUBSCRIPTIONS, UNSUBSCRIBE
from pgrouse.config.topic_policy import DEFAULTS
from pgrouse.web import policy_form, view
from pgrouse.web.caller import Caller, Role
from pgrouse.web.database_pool import Connection, Row, read_rows
from pgrouse.web.page import render, render_fragment
from pgrouse.web.paused_topics import read_paused_topics
from pgrouse.web.policy_form import PolicyDraft
from pgrouse.web.problem import Problem, database_problem
from pgrouse.web.result_charts import count_results, result_charts
from pgrouse.web.security import check_permission, require_role
from pgrouse.web.topic_counts import read_counts_of
from pgrouse.web.view import Context, View

router = APIRouter(include_in_schema=False)

MAX_CHANNELS = 100
Viewer = Annotated[Caller, Depends(require_role(Role.VIEWER))]
Operator = Annotated[Caller, Depends(require_role(Role.OPERATOR))]
Name = Annotated[str, Form(max_length=300)]

POLICY = b"SELECT t.* FROM messages.topic AS t WHERE t.topic IN ('*', %s)"
LIMITS = b"""
  SELECT
    (SELECT d.rows + coalesce((SELECT sum(c.change)::bigint FROM messages.depth_change AS c WHERE c.topic = d.topic), 0)
     FROM messages.depth AS d WHERE d.topic = %(topic)s) AS depth,
    (SELECT r.free_at FROM messages.rate AS r WHERE r.kind = 'dequeue' AND r.topic = %(topic)s AND r.channel = '') AS dequeue_free_at,
    (SELECT r.free_at FROM messages.rate AS r WHERE r.kind = 'publish' AND r.topic = %(topic)s AND r.channel = '') AS publish_free_at,
    messages.now() AS now"""
CHANNELS = b"""
  WITH running AS (
    SELECT m.channel, count(*) AS running FROM messages.message AS m
    WHERE m.topic = %(topic)s AND m.claim_id IS NOT NULL AND m.channel IS NOT NULL
    GROUP BY m.channel ORDER BY count(*) DESC LIMIT %(most)s
  ), own AS (
    SELECT c.channel, c.concurrency, c.min_interval, c.paused_at, c.resume_at, c.paused_by, c.paused_reason,
           c.paused_at IS NOT NULL AND (c.resume_at IS NULL OR c.resume_at > messages.now()) AS is_paused
    FROM messages.channel AS c WHERE c.topic = %(topic)s ORDER BY c.channel LIMIT %(most)s
  )
  SELECT coalesce(o.channel, r.channel) AS channel, coalesce(r.running, 0) AS running, o.concurrency, o.min_interval,
         coalesce(o.is_paused, false) AS is_paused, o.paused_at, o.resume_at, o.paused_by, o.paused_reason
  FROM own AS o FULL JOIN running AS r ON r.channel = o.channel
  ORDER BY 2 DESC, 1 LIMIT %(most)s"""


async def read_context(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read one topic, or with '*' the defaults."""
    if subject != DEFAULTS and not caller.sees(subject):
        raise Problem(403, f"{caller.name or 'you'} may not see topic {subject}", "forbidden", needs="viewer")
    own, defaults = await _policies(conn, subject)
    paused = await read_paused_topics(conn)
    groups = policy_form.form_groups(subject, own, defaults)
    context: Context = {
        "topic": subject,
        "is_defaults": subject == DEFAULTS,
        "pause": paused.get(subject),
        "all_paused": paused.get(DEFAULTS) if subject != DEFAULTS else None,
        "groups": groups,
        "was": json.dumps(policy_form.field_texts(groups)),
        "can_be_unlimited": policy_form.can_be_unlimited,
    }
    return context | (
        {"counts": None} if subject == DEFAULTS else await _read_topic(conn, caller, subject, own, defaults)
    )


async def _read_topic(conn: Connection, caller: Caller, topic: str, own: Row, defaults: Row) -> Context:
    """Return what there is of a topic that messages can have."""
    found = await read_counts_of(conn, caller, topic)
    if found is None:
        raise Problem(404, f"there is no topic {topic}: it has no messages and no policy", "not_found")
    limits = await (await conn.execute(LIMITS, {"topic": topic})).fetchone() or {}
    return {
        "counts": found,
        "channels": await (await conn.execute(CHANNELS, {"topic": topic, "most": MAX_CHANNELS})).fetchall(),
        "subscriptions": await _subscriptions(conn, caller, topic),
        "limits": _limits(found, own, defaults, limits),
        "channel_limit": _effective("channel_concurrency", own, defaults),
        "channel_interval": _effective("channel_min_interval", own, defaults),
        "is_ordered": _effective("ordered", own, defaults),
    }


async def read_measures(conn: Connection, _caller: Caller, subject: str) -> Context:
    """Read what the workers measured of one topic in the last hour."""
    if subject == DEFAULTS:
        return {"charts": {}}
    bars = await read_rows(conn, throughput(topic=subject))
    times = await read_rows(conn, latency(topic=subject))
    return {
        "latency": times[0] if times else None,
        "ended": count_results(bars),
        "charts": result_charts(bars),
    }


async def _subscriptions(conn: Connection, caller: Caller, topic: str) -> list[Row]:
    """Return who gets copies of this topic, and whose copies it gets, as far as the caller may see these topics."""
    rows = await (await conn.execute(SUBSCRIPTIONS.encode(), {"topic": topic})).fetchall()
    return [row for row in rows if caller.sees(row["topic"]) and caller.sees(row["subscriber"])]


async def _policies(conn: Connection, topic: str) -> tuple[Row, Row]:
    rows = {row["topic"]: row for row in await (await conn.execute(POLICY, [topic])).fetchall()}
    return rows.get(topic, {}), rows[DEFAULTS]


def _effective(setting: str, own: Row, defaults: Row) -> Any:
    """Return what holds for a limit; None = there is none."""
    value = defaults[setting] if own.get(setting) is None else own[setting]
    return value or None


def _limits(found: Row, own: Row, defaults: Row, state: Row) -> list[Row]:
    """Return the limits of a topic, each with how much of it is used."""
    names = (
        "max_concurrency",
        "dequeue_rate",
        "publish_rate",
        "max_depth",
        "channel_concurrency",
        "channel_min_interval",
        "ordered",
    )
    limits = {setting: _effective(setting, own, defaults) for setting in names}
    used = {"max_concurrency": found["running"], "max_depth": state.get("depth")}
    waits = {
        setting: free_at is not None and free_at > state["now"]
        for setting, free_at in (("dequeue_rate", state["dequeue_free_at"]), ("publish_rate", state["publish_free_at"]))
    }
    return [
        {"setting": setting, "limit": limit, "used": used.get(setting), "waits": waits.get(setting, False)}
        for setting, limit in limits.items()
        if limit is not None
    ]


VIEW = View(
    "topic",
    read_context,
    parts=("state", "figures", "limits", "channels", "subscriptions"),
    read_measures=read_measures,
)


@router.get("/topics/{topic}")
async def topic_page(request: Request, topic: str, caller: Viewer) -> Response:
    """Show the page."""
    return await view.show(request, caller, VIEW, topic, draft=None)


@router.post("/topics/{topic}/subscribe")
async def subscribe(request: Request, topic: str, caller: Operator, subscriber: Name) -> Response:
    """Let another topic get copies of what is published here from now on."""
    return await _change_subscription(request, caller, topic, subscriber.strip(), SUBSCRIBE, "gets")


@router.post("/topics/{topic}/unsubscribe")
async def unsubscribe(request: Request, topic: str, caller: Operator, subscriber: Name) -> Response:
    """End a subscription. What was copied stays."""
    return await _change_subscription(request, caller, topic, subscriber.strip(), UNSUBSCRIBE, "no longer gets")


async def _change_subscription(
    request: Request, caller: Caller, topic: str, subscriber: str, statement: str, what: str
) -> Response:
    for each in (topic, subscriber):
        check_permission(caller, Role.OPERATOR, each)
    async with request.app.state.db.write(caller) as conn:
        await conn.execute(statement.encode(), [topic, subscriber])
    text = f"{subscriber} {what} copies of the messages of {topic}."
    return await view.action_result(request, caller, VIEW, text, topic)


@router.post("/topics/{topic}/preview")
async def preview(request: Request, topic: str, caller: Operator) -> Response:
    """Say what the policy that was typed would change, and what of it cannot be."""
    _check_permission(caller, topic)
    draft = await _draft(request, topic)
    await asyncio.to_thread(policy_form.preview, request.app.state.db, topic, draft)
    return render(request, "topic/preview.html", topic=topic, draft=draft)


@router.post("/topics/{topic}/policy")
async def set_policy(request: Request, topic: str, caller: Operator) -> Response:
    """Set the policy that was typed."""
    _check_permission(caller, topic)
    draft = await _draft(request, topic)
    if draft.policy is not None:
        try:
            await asyncio.to_thread(policy_form.apply, request.app.state.db, caller, topic, draft)
        except psycopg.errors.DataError as error:
            draft.errors["policy"] = database_problem(error).detail
    if draft.errors:
        return render(request, "topic/preview.html", topic=topic, draft=draft)
    text = f"The policy is set: {len(draft.changes)} changed." if draft.changes else "Nothing was changed."
    return await view.action_result(
        request, caller, VIEW, text, topic, replaced=lambda context: _replaced_parts(request, context)
    )


def _replaced_parts(request: Request, context: Context) -> dict[str, str]:
    """Return the form again: a morph would keep what was typed."""
    shared = context | {"draft": None}
    return {"policy": render_fragment(request, "topic/policy.html", **shared)}


async def _draft(request: Request, topic: str) -> PolicyDraft:
    form = await request.form()
    typed = {name: str(value) for name, value in form.items()}
    try:
        was = json.loads(typed.pop("was", "{}"))
    except ValueError:
        was = None
    if not isinstance(was, dict) or not all(isinstance(text, str) for text in was.values()):
        raise Problem(422, "the form is incomplete: load the page again", "invalid_form")
    return await asyncio.to_thread(policy_form.read, topic, typed, was)


def _check_permission(caller: Caller, topic: str) -> None:
    check_permission(caller, Role.OPERATOR, None if topic == DEFAULTS else topic)
