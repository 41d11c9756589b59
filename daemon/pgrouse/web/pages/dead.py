"""Dead letters: what died, by topic, result and kind of error; put a group back, or let it be silent for a while."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

import psycopg
from fastapi import APIRouter, Depends, Form, Request
from starlette.responses import Response

from pgrouse.config import duration
from pgrouse.web import search, view
from pgrouse.web import bulk_actions as many
from pgrouse.web.caller import Caller, Role
from pgrouse.web.database_pool import Connection, Row
from pgrouse.web.security import allow, needs
from pgrouse.web.page import render
from pgrouse.web.problem import Problem, of_database
from pgrouse.web.rate import rate_of
from pgrouse.web.view import View

router = APIRouter(include_in_schema=False)

Viewer = Annotated[Caller, Depends(needs(Role.VIEWER))]
Operator = Annotated[Caller, Depends(needs(Role.OPERATOR))]

BARS = 24
MOST_GROUPS = 100
# How many of a group a preview judges one by one.
JUDGED = 1000
RANGES = {"1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
DEFAULT = "7d"
LONGEST_SILENCE = timedelta(days=30)

GROUPS = b"""
  SELECT g.topic, g.result, g.error_fingerprint AS fingerprint, g.count, g.redriven, g.first_seen, g.last_seen, g.sample_id, g.sample_error,
         g.trend, g.at_least
  FROM messages.dead_groups(%(since)s, NULL, NULL, %(bars)s) AS g
  WHERE %(topics)s::text[] IS NULL OR g.topic LIKE ANY (%(topics)s)
  ORDER BY g.count - g.redriven DESC, g.last_seen DESC LIMIT %(limit)s"""
SILENCES = b"""
  SELECT s.id, s.kind, s.topic, s.error_fingerprint AS fingerprint, s.until, s.why, s.created_by
  FROM messages.silence AS s
  WHERE s.ended_at IS NULL AND s.until > clock_timestamp() AND coalesce(s.kind, 'dead_message') = 'dead_message'
  ORDER BY s.until LIMIT 100"""
# A group without a fingerprint is one whose messages died without an error: find_dead cannot ask for that, so each row tells its own.
OF_GROUP = b"""
  SELECT f.id, f.error_fingerprint AS fingerprint FROM messages.find_dead(%(topic)s, %(result)s, %(fingerprint)s, p_until => %(until)s, p_limit => %(limit)s, p_after => %(after)s) AS f
  ORDER BY f.archived_at, f.id"""
JUDGE = b"SELECT m.outcome, count(*) AS count FROM messages.may_redrive(%(ids)s) AS m GROUP BY 1 ORDER BY 2 DESC"
SILENCE = b"SELECT messages.silence('dead_message', %(topic)s, %(fingerprint)s, %(for)s, NULL, %(why)s) AS id"
SILENCED = b"SELECT s.topic FROM messages.silence AS s WHERE s.id = %(id)s"
UNSILENCE = b"SELECT messages.unsilence(%(id)s) AS was_on"


async def _look(conn: Connection, caller: Caller, subject: str) -> dict[str, Any]:
    chosen = subject if subject in RANGES else DEFAULT
    values = {
        "since": RANGES[chosen],
        "bars": BARS,
        "limit": MOST_GROUPS + 1,
        "topics": None if caller.sees_all else caller.like,
    }
    groups = await (await conn.execute(GROUPS, values)).fetchall()
    silences = [each for each in await (await conn.execute(SILENCES)).fetchall() if _concerns(caller, each)]
    for group in groups:
        group["silence"] = next((each for each in silences if _matches(each, group)), None)
        group["choice"] = json.dumps({name: group[name] for name in ("topic", "result", "fingerprint")})
    return {
        "groups": groups[:MOST_GROUPS],
        "more": len(groups) > MOST_GROUPS,
        "silences": silences,
        "ranges": list(RANGES),
        "range": chosen,
    }


def _concerns(caller: Caller, silence: Row) -> bool:
    return caller.sees_all or (silence["topic"] is not None and caller.sees(silence["topic"]))


def _matches(silence: Row, group: Row) -> bool:
    topic, fingerprint = silence["topic"], silence["fingerprint"]
    return (topic is None or _like(topic, group["topic"])) and fingerprint in (None, group["fingerprint"])


def _like(pattern: str, topic: str) -> bool:
    """As messages.silence: * stands for any characters."""
    first, *others = pattern.split("*")
    if not others:
        return pattern == topic
    *between, last = others
    at = len(first)
    if not topic.startswith(first):
        return False
    for part in between:
        found = topic.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(topic) - at >= len(last) and topic.endswith(last)


VIEW = View("dead", _look, parts=("groups",))


@router.get("/dead")
async def dead(request: Request, caller: Viewer) -> Response:
    """Show the groups."""
    return await view.show(request, caller, VIEW, request.query_params.get("of", ""))


@router.get("/dead/redrive")
async def preview(request: Request, caller: Operator) -> Response:
    """Say what would become of a group, and ask."""
    params = request.query_params
    group = _group(params)
    allow(caller, Role.OPERATOR, group["topic"])
    async with request.app.state.db.read() as conn:
        consent = await many.now(conn)
        values = {**group, "until": consent.asof, "after": None}
        rows = await (await conn.execute(OF_GROUP, {**values, "limit": many.BOUND + 1})).fetchall()
        counted = [row["id"] for row in rows if row["fingerprint"] == group["fingerprint"]]
        ids = counted[:JUDGED]
        outcomes = await (await conn.execute(JUDGE, {"ids": ids})).fetchall()
    at_least, count = len(rows) > many.BOUND, min(len(counted), many.BOUND)
    consent = replace(consent, most=None if at_least else count)
    return render(
        request,
        "dead_redrive.html",
        group=group,
        count=count,
        at_least=at_least,
        judged=len(ids),
        outcomes=outcomes,
        fields={**group, **consent.fields},
    )


@router.post("/dead/redrive")
async def redrive(request: Request, caller: Operator) -> Response:
    """Put the next batch of a group back, and say how far it is."""
    form = await request.form()
    group, consent = _group(form), many.Consent.of(form)
    allow(caller, Role.OPERATOR, group["topic"])
    so_far, fault, is_done = many.counted(str(form.get("so_far") or "")), "", False
    rate, force = rate_of(str(form.get("rate") or "")), bool(form.get("force"))
    after = str(form.get("after") or "")
    if after and not (after.isascii() and after.isdecimal() and int(after[:25]) < 2**63):
        raise Problem(422, "after is no id of a message", "invalid_place")
    values = {**group, "until": consent.asof, "limit": many.BATCH, "after": int(after) if after else None}
    try:
        async with request.app.state.db.write(caller, many.BATCH_TIME) as conn:
            rows = await (await conn.execute(OF_GROUP, values)).fetchall()
            ids = [row["id"] for row in rows if row["fingerprint"] == group["fingerprint"]][: consent.left(so_far)]
            delay = many.delay(so_far, rate)
            did = await many.do(conn, many.Act.REDRIVE, ids, rate=rate, delay=delay, force=force)
        so_far += did
        after = str(rows[-1]["id"]) if rows else ""
        is_done = len(rows) < many.BATCH or not consent.left(so_far)
    except psycopg.Error as error:
        # Nothing of this batch was done, and all of those before it: from here somebody may try again.
        fault = of_database(error).detail
    request.app.state.hub.poke()
    fields = {
        **group,
        **consent.fields,
        "rate": f"{rate:g}" if rate else "",
        "force": "1" if force else "",
        "after": after,
        "so_far": json.dumps(so_far),
    }
    template = "dead/progress.html" if request.headers.get("hx-request") else "dead_progress.html"
    return render(request, template, group=group, so_far=so_far, fields=fields, is_done=is_done, fault=fault)


@router.post("/dead/silence")
async def silence(
    request: Request,
    caller: Operator,
    lasts: Annotated[str, Form(max_length=50, alias="for")] = "",
    why: Annotated[str, Form(max_length=1000)] = "",
) -> Response:
    """Let nobody be told of a group for a while."""
    form = await request.form()
    group = _group(_chosen(str(form.get("group") or "")))
    allow(caller, Role.OPERATOR, group["topic"])
    try:
        wanted = duration.parse(lasts)
    except ValueError as error:
        raise Problem(422, f"for: {error}", "invalid_duration") from None
    if not timedelta(seconds=1) <= wanted <= LONGEST_SILENCE:
        raise Problem(422, f"for is {lasts!r}: use 1s to {duration.show(LONGEST_SILENCE)}", "invalid_duration")
    async with request.app.state.db.write(caller) as conn:
        await conn.execute(SILENCE, {**group, "for": wanted, "why": why.strip() or None})
    text = f"Nobody is told of it for {duration.show(wanted)}."
    return await view.acted(request, caller, VIEW, text, str(form.get("of") or ""))


@router.post("/dead/unsilence")
async def unsilence(
    request: Request,
    caller: Operator,
    silence_id: Annotated[int, Form(alias="id", ge=1, lt=2**63)],
    of: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """End a silence."""
    async with request.app.state.db.write(caller) as conn:
        row = await (await conn.execute(SILENCED, {"id": silence_id})).fetchone()
        if row is None:
            raise Problem(404, f"there is no silence {silence_id}", "not_found")
        allow(caller, Role.OPERATOR, row["topic"])
        await conn.execute(UNSILENCE, {"id": silence_id})
    return await view.acted(request, caller, VIEW, "Its alerts are told again.", of)


def _chosen(text: str) -> dict[str, Any]:
    """Return the group that a choice of the form stands for."""
    try:
        chosen = json.loads(text[:2000])
    except (ValueError, RecursionError):
        chosen = None
    return chosen if isinstance(chosen, dict) else {}


def _group(values: Any) -> dict[str, Any]:
    """Return topic, result and fingerprint of a group."""
    group = {name: str(values.get(name) or "")[:300] or None for name in ("topic", "result", "fingerprint")}
    if group["topic"] is None or group["result"] not in search.DEAD:
        raise Problem(422, f"a group has a topic, and a result of {', '.join(search.DEAD)}", "invalid_group")
    return group
