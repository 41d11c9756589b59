"""The policy of one topic in full: what holds, where it comes from, what is paused, who subscribes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from pgrouse.cli.command import Session
from pgrouse.cli.policy_args import model_of
from pgrouse.cli.output import Column, show_age
from pgrouse.config.topic_policy import DEFAULTS, ChannelPolicy, show_knob

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
class Portrait:
    """What is known of one topic's policy, or of one channel's.

    Attributes:
        knobs: each knob with its value, and the row that it comes from.
        paused: what is paused: by whom, why, since and until when.
        channels: the channels that differ, or the one that was asked for.
        subscriptions: those to the topic and those of the topic.
        now: the server's clock.
    """

    topic: str
    channel: str | None
    knobs: list[Row]
    paused: dict[str, Row]
    channels: list[Row]
    subscriptions: list[Row]
    now: datetime


def policies(conn: psycopg.Connection) -> list[Row]:
    """Return the rows of policy, the defaults first."""
    return _rows(conn, TOPICS)


def look(conn: psycopg.Connection, topic: str, channel: str | None) -> Portrait:
    """Read all that there is about a topic's policy."""
    rows = {row["topic"]: row for row in policies(conn)}
    channels = _rows(conn, CHANNELS, [topic, channel, channel])
    places = [(f"channel {channel}", channels[0] if channels else {})] if channel is not None else []
    places += [(each, rows.get(each, {})) for each in (topic, DEFAULTS)]
    return Portrait(
        topic,
        channel,
        [_holds(knob, channel, places) for knob in model_of(channel).names()],
        _paused(topic, rows, channels),
        channels,
        _rows(conn, SUBSCRIPTIONS, [topic]),
        _rows(conn, NOW)[0]["now"],
    )


def _rows(conn: psycopg.Connection, query: str, values: list[Any] | None = None) -> list[Row]:
    return conn.cursor(row_factory=dict_row).execute(query.encode(), values).fetchall()


def _holds(knob: str, channel: str | None, places: list[tuple[str, Row]]) -> Row:
    """Return what a knob is, and from which place: the first one that has it."""
    # What a channel does not set is a knob of its topic, by another name.
    names = (knob,) if channel is None else (knob, f"channel_{knob}")
    for where, row in places:
        for name in names:
            if row.get(name) is not None:
                return {"knob": knob, "value": row[name], "from": where}
    return {"knob": knob, "value": None, "from": None}


def _paused(topic: str, rows: dict[str, Row], channels: list[Row]) -> dict[str, Row]:
    named = {"every topic": rows.get(DEFAULTS, {}), f"topic {topic}": rows.get(topic, {}) if topic != DEFAULTS else {}}
    named |= {f"channel {row['channel']}": row for row in channels}
    return {what: pause for what, row in named.items() if (pause := pause_of(row))}


def pause_of(row: Row) -> Row | None:
    """Return the pause of a topic or channel, None if there is none."""
    if not row.get("is_paused"):
        return None
    return {"at": row["paused_at"], "by": row["paused_by"], "why": row["paused_why"], "resume_at": row["resume_at"]}


def show_policy(session: Session, portrait: Portrait) -> None:
    """Print a portrait."""
    if session.as_json:
        session.output.record(_plain(portrait))
        return
    columns = [Column("KNOB", "knob"), Column("VALUE", "text", wide=True, folds=True), Column("FROM", "from")]
    session.output.rows(columns, [_written(row) for row in portrait.knobs], "")
    for line in _remarks(portrait):
        session.output.say(line)
    own = portrait.topic == DEFAULTS or portrait.channel or any(row["from"] == portrait.topic for row in portrait.knobs)
    if not own:
        # Whoever mistyped the name sees only defaults, too.
        session.output.note(f"topic {portrait.topic} sets nothing of its own: see `pgrouse topic list`")


def _written(row: Row) -> Row:
    return row | {"text": None if row["value"] is None else show_knob(row["knob"], row["value"])}


def _plain(portrait: Portrait) -> Row:
    subscriptions = portrait.subscriptions
    return {
        "topic": portrait.topic,
        "channel": portrait.channel,
        "policy": {row["knob"]: {"value": row["value"], "from": row["from"]} for row in portrait.knobs},
        "paused": portrait.paused,
        "channels": [_plain_channel(row) for row in portrait.channels],
        "subscribers": [row["subscriber"] for row in subscriptions if row["topic"] == portrait.topic],
        "subscriptions": [row["topic"] for row in subscriptions if row["subscriber"] == portrait.topic],
    }


def _plain_channel(row: Row) -> Row:
    return {"channel": row["channel"], **{knob: row[knob] for knob in ChannelPolicy.names()}, "paused": pause_of(row)}


def _remarks(portrait: Portrait) -> Iterator[str]:
    for what, pause in portrait.paused.items():
        resume_at = pause["resume_at"]
        until = f"for another {show_age(resume_at - portrait.now)}" if resume_at else "until it is resumed"
        why = f": {pause['why']}" if pause["why"] else ""
        yield f"{what} is paused since {show_age(portrait.now - pause['at'])} by {pause['by']}, {until}{why}"
    for row in portrait.channels if portrait.channel is None else []:
        own = [f"{knob}={show_knob(knob, row[knob])}" for knob in ChannelPolicy.names() if row[knob] is not None]
        if own:
            yield f"channel {row['channel']}: {' '.join(own)}"
    for row in portrait.subscriptions:
        yield f"{row['subscriber']} gets what is published to {row['topic']}"
