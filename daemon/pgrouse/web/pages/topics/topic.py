"""A topic: how it goes, its channels, its policy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

import psycopg
from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from pgrouse.client.call import Call, run_async
from pgrouse.client.calls.monitoring.state import TopicState, topic_state
from pgrouse.client.calls.monitoring.stats import latency, throughput
from pgrouse.client.queries.alert import (
    THRESHOLDS,
    TOPIC_THRESHOLDS,
    find_thresholds,
    read_threshold,
    set_thresholds,
)
from pgrouse.client.queries.channel import channels_in_use
from pgrouse.client.queries.topic import (
    Policy,
    add_subscription,
    effective_policy,
    find_policies,
    find_subscriptions,
    remove_policy,
    remove_subscription,
    waiting_rates,
)
from pgrouse.config.policy.topic_policy import DEFAULTS, show
from pgrouse.values.topic_pattern import is_pattern
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, Row, read_rows, run_write
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.charts.result_charts import count_results, result_charts
from pgrouse.web.http.problem import Problem, database_problem
from pgrouse.web.page import policy_form, view
from pgrouse.web.page.page import render, render_fragment
from pgrouse.web.page.policy_form import PolicyDraft
from pgrouse.web.page.view import Context, View
from pgrouse.web.search.message_counts import read_counts_of

router = APIRouter()

MAX_CHANNELS = 100
LIMITS = (
    *("max_concurrency", "worker_concurrency", "dequeue_rate", "publish_rate", "max_depth"),
    *("channel_concurrency", "channel_min_interval", "ordered"),
)
Name = Annotated[str, Form(max_length=300)]


async def read_context(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read one topic; a pattern; or with '*' the defaults."""
    if subject != DEFAULTS and not caller.sees(subject):
        raise Problem(403, f"{caller.name or 'you'} may not see topic {subject}", "forbidden", needs="viewer")
    policies = await run_async(conn, find_policies([subject]))
    (state,) = await run_async(conn, topic_state([subject]))
    inherited = policies[DEFAULTS] if subject == DEFAULTS else effective_policy(policies | {subject: {}}, subject)
    groups = policy_form.form_groups(subject, policies.get(subject, {}), inherited)
    context: Context = {
        "topic": subject,
        "is_defaults": subject == DEFAULTS,
        "state": state,
        "groups": groups,
        "was": json.dumps(policy_form.field_texts(groups)),
        "can_be_unlimited": policy_form.can_be_unlimited,
    }
    thresholds = {each.topic: asdict(each) for each in await run_async(conn, find_thresholds())}
    context |= {
        "has_own": any(value is not None for value in policies.get(subject, {}).values()),
        "thresholds": _threshold_fields(subject, thresholds.get(subject, {}), thresholds[DEFAULTS]),
    }
    policy = effective_policy(policies, subject)
    if is_pattern(subject):
        return context | {"counts": None, "subscriptions": await _read_subscriptions(conn, caller, subject)}
    return context | await _read_topic(conn, caller, state, policy)


async def _read_topic(conn: Connection, caller: Caller, state: TopicState, policy: Policy) -> Context:
    """Return what there is of a topic that messages can have."""
    found = await read_counts_of(conn, caller, state.topic)
    if found is None:
        raise Problem(404, f"there is no topic {state.topic}: it has no messages and no policy", "not_found")
    rates = await run_async(conn, waiting_rates(state.topic))
    return {
        "counts": found,
        "channels": await run_async(conn, channels_in_use(state.topic, MAX_CHANNELS)),
        "subscriptions": await _read_subscriptions(conn, caller, state.topic),
        "limits": _limits(found, policy, state, rates),
        "channel_limit": policy["channel_concurrency"] or None,
        "channel_interval": policy["channel_min_interval"] or None,
        "is_ordered": policy["ordered"],
    }


async def _read_subscriptions(conn: Connection, caller: Caller, topic: str) -> list[Row]:
    found = await read_rows(conn, find_subscriptions(topic))
    return [row for row in found if caller.sees(row["topic"]) and caller.sees(row["subscriber"])]


def _threshold_fields(topic: str, own: Row, defaults: Row) -> list[Row]:
    """Return the thresholds of a topic, as they are typed."""
    return [
        {
            "name": name,
            "meaning": meaning,
            "text": "" if own.get(name) is None else show(own[name]),
            "inherited": None if topic == DEFAULTS else show(defaults[name]),
        }
        for name, meaning in (THRESHOLDS if topic == DEFAULTS else TOPIC_THRESHOLDS).items()
    ]


async def read_measures(conn: Connection, _caller: Caller, subject: str) -> Context:
    """Read what the workers measured of one topic in the last hour."""
    if is_pattern(subject):
        return {"charts": {}}
    bars = await read_rows(conn, throughput(topic=subject))
    times = await read_rows(conn, latency(topic=subject))
    return {
        "latency": times[0] if times else None,
        "ended": count_results(bars),
        "charts": result_charts(bars),
    }


def _limits(found: Row, policy: Policy, state: TopicState, rates: dict[str, bool]) -> list[Row]:
    """Return the limits of a topic, each with how much of it is used."""
    used = {"max_concurrency": found["running"], "max_depth": state.depth}
    is_full = {"max_concurrency": found["running"] >= (policy["max_concurrency"] or 0), "max_depth": state.full}
    return [
        {
            "setting": setting,
            "limit": policy[setting],
            "used": used.get(setting),
            "is_full": is_full.get(setting, False),
            "waits": rates.get(setting.removesuffix("_rate"), False),
        }
        for setting in LIMITS
        if policy[setting]
    ]


VIEW = View(
    "topics/topic",
    read_context,
    parts=("state", "figures", "limits", "channels", "subscriptions"),
    read_measures=read_measures,
)


@router.get("/topics/{subject}")
async def topic_page(request: Request, subject: str, caller: Viewer) -> Response:
    """Show the page: of a topic that the caller sees, or to anyone of the defaults."""
    return await view.show(request, caller, VIEW, subject, draft=None)


@router.post("/topics/{topic}/subscribe")
async def subscribe(request: Request, topic: str, caller: Operator, subscriber: Name) -> Response:
    """Let another topic get copies of what is published here from now on."""
    return await _change_subscription(request, caller, topic, subscriber.strip(), add_subscription, "gets")


@router.post("/topics/{topic}/unsubscribe")
async def unsubscribe(request: Request, topic: str, caller: Operator, subscriber: Name) -> Response:
    """End a subscription. What was copied stays."""
    return await _change_subscription(request, caller, topic, subscriber.strip(), remove_subscription, "no longer gets")


async def _change_subscription(
    request: Request,
    caller: Caller,
    topic: str,
    subscriber: str,
    change: Callable[[str, str], Call[bool]],
    what: str,
) -> Response:
    check_permission(caller, Role.OPERATOR, subscriber)
    await run_write(request, caller, change(topic, subscriber))
    text = f"{subscriber} {what} copies of the messages of {topic}."
    return await view.action_result(request, caller, VIEW, text, topic)


@router.post("/topics/{topic}/preview")
async def preview(request: Request, topic: str, caller: Operator) -> Response:
    """Say what the policy that was typed would change, and what of it cannot be."""
    draft = await _draft(request, topic)
    await asyncio.to_thread(policy_form.preview, request.app.state.db, topic, draft)
    return render(request, "topics/topic/preview.html", topic=topic, draft=draft)


@router.post("/topics/{topic}/policy")
async def set_policy(request: Request, topic: str, caller: Operator) -> Response:
    """Set the policy that was typed."""
    draft = await _draft(request, topic)
    if draft.policy is not None:
        try:
            await asyncio.to_thread(policy_form.apply, request.app.state.db, caller, topic, draft)
        except psycopg.errors.DataError as error:
            draft.errors["policy"] = database_problem(error).detail
    if draft.errors:
        return render(request, "topics/topic/preview.html", topic=topic, draft=draft)
    text = f"The policy is set: {len(draft.changes)} changed." if draft.changes else "Nothing was changed."
    return await view.action_result(
        request, caller, VIEW, text, topic, replaced=lambda context: _replaced_parts(request, context)
    )


@router.post("/topics/{topic}/reset")
async def reset(request: Request, topic: str, caller: Operator) -> Response:
    """Remove all that a topic sets itself, and its pause."""
    await run_write(request, caller, remove_policy(topic))
    # Without messages there is no such topic any more.
    return await view.redirect(request, "/topics")


@router.post("/topics/{topic}/thresholds")
async def change_thresholds(request: Request, topic: str, caller: Operator) -> Response:
    """Set from when on something about a topic is reported, or by default."""
    form = await request.form()
    typed = {name: str(form[name]) for name in THRESHOLDS if name in form}
    try:
        call = set_thresholds(topic, {name: read_threshold(name, text) for name, text in typed.items()})
    except ValueError as error:
        raise Problem(422, str(error), "invalid_value") from None
    await run_write(request, caller, call)
    return await view.action_result(
        request,
        caller,
        VIEW,
        "The thresholds are set.",
        topic,
        replaced=lambda context: _replaced_parts(request, context),
    )


def _replaced_parts(request: Request, context: Context) -> dict[str, str]:
    """Return the forms again: a morph would keep what was typed."""
    shared = context | {"draft": None}
    return {name: render_fragment(request, f"topics/topic/{name}.html", **shared) for name in ("policy", "thresholds")}


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
