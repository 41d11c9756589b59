"""The policy of one topic in full: the values in force, their origin, pauses and subscriptions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from pgrouse.cli.command import CliSession
from pgrouse.cli.table import Column
from pgrouse.config.policy_settings import ChannelPolicy
from pgrouse.config.policy_text import model_of
from pgrouse.config.topic_policy import DEFAULTS, show_setting
from pgrouse.format import show_age

PAUSED = "paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > clock_timestamp())"
TOPICS = f"SELECT t.*, {PAUSED} AS is_paused FROM messages.topic AS t ORDER BY t.topic <> '*', t.topic"  # noqa: S608
CHANNELS = f"""
  SELECT c.*, {PAUSED} AS is_paused FROM messages.channel AS c
  WHERE c.topic = %s AND (%s::text IS NULL OR c.channel = %s) ORDER BY c.channel LIMIT 1000"""  # noqa: S608
SUBSCRIPTIONS = """
  SELECT s.topic, s.subscriber FROM messages.subscription AS s WHERE %s IN (s.topic, s.subscriber)
  ORDER BY s.topic, s.subscriber"""
NOW = "SELECT clock_timestamp() AS now"

Row = dict[str, Any]


@dataclass(frozen=True)
class PolicyView:
    """The policy of one topic or one channel.

    Attributes:
        settings: each setting with its value, and the row that it comes from.
        paused: what is paused: by whom, why, since and until when.
        channels: the channels that differ, or the one that was asked for.
        subscriptions: those to the topic and those of the topic.
        now: the server's clock.
    """

    topic: str
    channel: str | None
    settings: list[Row]
    paused: dict[str, Row]
    channels: list[Row]
    subscriptions: list[Row]
    now: datetime


def policies(conn: psycopg.Connection) -> list[Row]:
    """Return the rows of policy, the defaults first."""
    return _rows(conn, TOPICS)


def read_policy_view(conn: psycopg.Connection, topic: str, channel: str | None) -> PolicyView:
    """Read the policy of a topic or channel."""
    rows = {row["topic"]: row for row in policies(conn)}
    channels = _rows(conn, CHANNELS, [topic, channel, channel])
    places = [(f"channel {channel}", channels[0] if channels else {})] if channel is not None else []
    places += [(each, rows.get(each, {})) for each in (topic, DEFAULTS)]
    return PolicyView(
        topic,
        channel,
        [_effective(setting, channel, places) for setting in model_of(channel).names()],
        _paused(topic, rows, channels),
        channels,
        _rows(conn, SUBSCRIPTIONS, [topic]),
        _rows(conn, NOW)[0]["now"],
    )


def _rows(conn: psycopg.Connection, query: str, values: list[Any] | None = None) -> list[Row]:
    return conn.cursor(row_factory=dict_row).execute(query.encode(), values).fetchall()


def _effective(setting: str, channel: str | None, places: list[tuple[str, Row]]) -> Row:
    """Return the value of a setting and its origin: the first place that sets it."""
    # A value that a channel does not set is a setting of its topic, with another name.
    names = (setting,) if channel is None else (setting, f"channel_{setting}")
    for where, row in places:
        for name in names:
            if row.get(name) is not None:
                return {"setting": setting, "value": row[name], "from": where}
    return {"setting": setting, "value": None, "from": None}


def _paused(topic: str, rows: dict[str, Row], channels: list[Row]) -> dict[str, Row]:
    named = {"every topic": rows.get(DEFAULTS, {}), f"topic {topic}": rows.get(topic, {}) if topic != DEFAULTS else {}}
    named |= {f"channel {row['channel']}": row for row in channels}
    return {what: pause for what, row in named.items() if (pause := read_pause(row))}


def read_pause(row: Row) -> Row | None:
    """Return the pause of a topic or channel, None if there is none."""
    if not row.get("is_paused"):
        return None
    return {
        "at": row["paused_at"],
        "by": row["paused_by"],
        "reason": row["paused_reason"],
        "resume_at": row["resume_at"],
    }


def show_policy(session: CliSession, view: PolicyView) -> None:
    """Print a policy."""
    if session.as_json:
        session.output.record(_as_json(view))
        return
    columns = [Column("SETTING", "setting"), Column("VALUE", "text", wide=True, folds=True), Column("FROM", "from")]
    session.output.rows(columns, [_as_text(row) for row in view.settings], "")
    for line in _notes(view):
        session.output.say(line)
    own = view.topic == DEFAULTS or view.channel or any(row["from"] == view.topic for row in view.settings)
    if not own:
        # A mistyped name shows only defaults, too.
        session.output.note(f"topic {view.topic} sets nothing of its own: see `pgrouse topic list`")


def _as_text(row: Row) -> Row:
    return row | {"text": None if row["value"] is None else show_setting(row["setting"], row["value"])}


def _as_json(view: PolicyView) -> Row:
    subscriptions = view.subscriptions
    return {
        "topic": view.topic,
        "channel": view.channel,
        "policy": {row["setting"]: {"value": row["value"], "from": row["from"]} for row in view.settings},
        "paused": view.paused,
        "channels": [_channel_as_json(row) for row in view.channels],
        "subscribers": [row["subscriber"] for row in subscriptions if row["topic"] == view.topic],
        "subscriptions": [row["topic"] for row in subscriptions if row["subscriber"] == view.topic],
    }


def _channel_as_json(row: Row) -> Row:
    return {
        "channel": row["channel"],
        **{setting: row[setting] for setting in ChannelPolicy.names()},
        "paused": read_pause(row),
    }


def _notes(view: PolicyView) -> Iterator[str]:
    for what, pause in view.paused.items():
        resume_at = pause["resume_at"]
        until = f"for another {show_age(resume_at - view.now)}" if resume_at else "until it is resumed"
        reason = f": {pause['reason']}" if pause["reason"] else ""
        yield f"{what} has been paused for {show_age(view.now - pause['at'])} by {pause['by']}, {until}{reason}"
    for row in view.channels if view.channel is None else []:
        own = [
            f"{setting}={show_setting(setting, row[setting])}"
            for setting in ChannelPolicy.names()
            if row[setting] is not None
        ]
        if own:
            yield f"channel {row['channel']}: {' '.join(own)}"
    for row in view.subscriptions:
        yield f"{row['subscriber']} gets what is published to {row['topic']}"
