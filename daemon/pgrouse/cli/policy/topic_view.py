"""The policy of one topic in full: the values in force, their origin, its state and subscriptions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from pgrouse.client.call import run
from pgrouse.client.calls.monitoring.state import TopicState, topic_state
from pgrouse.client.queries.channel import Channel, find_channels
from pgrouse.client.queries.clock import queue_now
from pgrouse.client.queries.topic import Subscription, find_policies, find_subscriptions
from pgrouse.config.policy.policy_settings import ChannelPolicy
from pgrouse.config.policy.policy_text import model_of
from pgrouse.config.policy.topic_policy import DEFAULTS, show_setting
from pgrouse.terminal.command import CliSession
from pgrouse.terminal.table import Column
from pgrouse.values.format import show_age
from pgrouse.values.topic_pattern import patterns_of

Row = dict[str, Any]


@dataclass(frozen=True)
class PolicyView:
    """The policy of one topic or one channel.

    Attributes:
        settings: each setting with its value, and the row that it comes from.
        state: of the topic.
        every: the state of all topics.
        channels: the channels that differ, or the one that was asked for.
        subscriptions: those to the topic and those of the topic.
        now: the queue's clock.
    """

    topic: str
    channel: str | None
    settings: list[Row]
    state: TopicState
    every: TopicState
    channels: list[Channel]
    subscriptions: list[Subscription]
    now: datetime


def read_policy_view(conn: psycopg.Connection, topic: str, channel: str | None) -> PolicyView:
    """Read the policy of a topic or channel."""
    policies = run(conn, find_policies([topic]))
    states = {each.topic: each for each in run(conn, topic_state([DEFAULTS, topic]))}
    channels = run(conn, find_channels(topic, channel=channel))
    own = {name: getattr(channels[0], name) for name in ChannelPolicy.names()} if channels else {}
    places = [(f"channel {channel}", own)] if channel is not None else []
    places += [(each, policies.get(each, {})) for each in (topic, *patterns_of(topic), DEFAULTS)]
    return PolicyView(
        topic,
        channel,
        [_effective(setting, channel, places) for setting in model_of(channel).names()],
        states[topic],
        states[DEFAULTS],
        channels,
        run(conn, find_subscriptions(topic)),
        run(conn, queue_now()),
    )


def _effective(setting: str, channel: str | None, places: list[tuple[str, Row]]) -> Row:
    """Return the value of a setting and its origin: the first place that sets it."""
    # A value that a channel does not set is a setting of its topic, with another name.
    names = (setting,) if channel is None else (setting, f"channel_{setting}")
    for where, row in places:
        for name in names:
            if row.get(name) is not None:
                return {"setting": setting, "value": row[name], "from": where}
    return {"setting": setting, "value": None, "from": None}


def pause_as_json(state: TopicState | Channel) -> Row | None:
    """Return the pause of a topic or channel, None if there is none."""
    if not state.paused:
        return None
    return {"at": state.paused_at, "by": state.paused_by, "reason": state.paused_reason, "resume_at": state.resume_at}


def _pauses(view: PolicyView) -> dict[str, Row]:
    named: dict[str, TopicState | Channel] = {"every topic": view.every} if view.every.paused else {}
    if view.topic != DEFAULTS and view.state.has_own_pause:
        named[f"topic {view.topic}"] = view.state
    elif view.state.paused and view.state.paused_topic != DEFAULTS:
        named[f"pattern {view.state.paused_topic}"] = view.state
    named |= {f"channel {each.channel}": each for each in view.channels}
    return {what: pause for what, each in named.items() if (pause := pause_as_json(each))}


def show_policy(session: CliSession, view: PolicyView) -> None:
    """Print a policy."""
    if session.as_json:
        session.record(_as_json(view))
        return
    columns = [Column("SETTING", "setting"), Column("VALUE", "text", wide=True, folds=True), Column("FROM", "from")]
    session.rows(columns, [_as_text(row) for row in view.settings], "")
    for line in _notes(view):
        session.say(line)
    own = view.topic == DEFAULTS or view.channel or any(row["from"] == view.topic for row in view.settings)
    if not own:
        # A mistyped name shows only defaults, too.
        session.note(f"topic {view.topic} sets nothing of its own: see `pgrouse topic list`")


def _as_text(row: Row) -> Row:
    return row | {"text": None if row["value"] is None else show_setting(row["setting"], row["value"])}


def _as_json(view: PolicyView) -> Row:
    subscriptions = view.subscriptions
    return {
        "topic": view.topic,
        "channel": view.channel,
        "policy": {row["setting"]: {"value": row["value"], "from": row["from"]} for row in view.settings},
        "state": view.state.state,
        "paused": _pauses(view),
        "breaker": view.state.breaker,
        "probe_at": view.state.probe_at,
        "handled": view.state.handled,
        "full": view.state.full,
        "channels": [_channel_as_json(each) for each in view.channels],
        "subscribers": [each.subscriber for each in subscriptions if each.topic == view.topic],
        "subscriptions": [each.topic for each in subscriptions if each.subscriber == view.topic],
    }


def _channel_as_json(channel: Channel) -> Row:
    return {
        "channel": channel.channel,
        **{setting: getattr(channel, setting) for setting in ChannelPolicy.names()},
        "paused": pause_as_json(channel),
    }


def _notes(view: PolicyView) -> Iterator[str]:
    for what, pause in _pauses(view).items():
        resume_at = pause["resume_at"]
        until = f"for another {show_age(resume_at - view.now)}" if resume_at else "until it is resumed"
        reason = f": {pause['reason']}" if pause["reason"] else ""
        yield f"{what} has been paused for {show_age(view.now - pause['at'])} by {pause['by']}, {until}{reason}"
    state = view.state
    if state.probe_at is not None:
        until = f"until {show_age(state.probe_at - view.now)} from now" if state.breaker == "open" else "and probes"
        yield f"the breaker of topic {view.topic} is open {until}: {state.breaker_reason}"
    if state.full:
        yield f"topic {view.topic} is full: it holds {state.depth:,} messages, and max_depth is {state.max_depth:,}"
    for each in view.channels if view.channel is None else []:
        own = [
            f"{setting}={show_setting(setting, value)}"
            for setting in ChannelPolicy.names()
            if (value := getattr(each, setting)) is not None
        ]
        if own:
            yield f"channel {each.channel}: {' '.join(own)}"
    for subscription in view.subscriptions:
        yield f"{subscription.subscriber} gets what is published to {subscription.topic}"
