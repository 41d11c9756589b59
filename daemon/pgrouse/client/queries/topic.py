"""Topics: their policies and subscriptions, and what is counted of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from pgrouse.client.call import Call, Rows, query_call, select_call, value
from pgrouse.client.queries.topic_filter import WANTED
from pgrouse.config.policy.policy_settings import TopicPolicy
from pgrouse.config.policy.topic_policy import DEFAULTS
from pgrouse.values.topic_pattern import patterns_of

Policy = dict[str, Any]

REMOVE_POLICY = b"""
  DELETE FROM messages.topic AS t
  WHERE t.topic OPERATOR(pg_catalog.=) %(topic)s AND t.topic OPERATOR(pg_catalog.<>) '*' RETURNING true"""
SUBSCRIBE = b"""
  INSERT INTO messages.subscription (topic, subscriber) VALUES (%(topic)s, %(subscriber)s)
  ON CONFLICT DO NOTHING RETURNING true"""
UNSUBSCRIBE = b"""
  DELETE FROM messages.subscription AS s
  WHERE s.topic OPERATOR(pg_catalog.=) %(topic)s AND s.subscriber OPERATOR(pg_catalog.=) %(subscriber)s
  RETURNING true"""
RATES = b"""
  SELECT r.kind, r.free_at > messages.now() FROM messages.rate AS r
  WHERE r.kind IN ('dequeue', 'publish') AND r.topic = %(topic)s AND r.channel = ''"""
# now(), not messages.now(): the planner must see how little that is.
ENDED = """
  SELECT m.topic, floor(extract(epoch FROM messages.now() - m.minute) / 60)::int AS minutes_ago,
         m.success + m.retried + m.rejected + m.failed + m.lock_expired AS ended
  FROM messages.measure AS m
  WHERE m.minute > now() - interval '1 hour' AND m.topic = ANY (%(topics)s)"""
DIED = f"""
  SELECT c.topic, c.result, sum(c.count)::bigint AS count FROM messages.dead_count AS c
  WHERE {WANTED.format("c.topic")}
  GROUP BY c.topic, c.result"""  # noqa: S608 - constants only
WAITING = b"""
  SELECT count(*), coalesce(max(f.id), 0), (SELECT coalesce(max(m.id), 0) FROM messages.message AS m)
  FROM (
    SELECT m.id FROM messages.message AS m WHERE m.topic = %(topic)s AND m.claim_id IS NULL LIMIT %(most)s) AS f"""
SCHEMAS = b"""
  SELECT t.topic, t.payload_schema::pg_catalog.text FROM messages.topic AS t
  WHERE t.payload_schema IS NOT NULL ORDER BY t.topic"""
# A digest of the row versions.
SCHEMAS_VERSION = b"""
  SELECT coalesce(pg_catalog.md5(pg_catalog.string_agg(pg_catalog.concat(topic, ' ', xmin), ' ' ORDER BY topic)), '')
  FROM messages.topic WHERE payload_schema IS NOT NULL"""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topic `subscriber` gets a copy of what is published to `topic`.

    Attributes:
        created_at: when it was added; in JSON, in ISO 8601.
        created_by: the user who added it.
    """

    topic: str
    subscriber: str
    created_at: datetime
    created_by: str


@dataclass(frozen=True, slots=True)
class EndedMinute:
    """How many attempts of a topic ended in one minute, and how many minutes ago that began."""

    topic: str
    minutes_ago: int
    ended: int


@dataclass(frozen=True, slots=True)
class DeadCount:
    """How many messages of a topic have died with one result."""

    topic: str
    result: str
    count: int


def find_policies(
    topics: Sequence[str] | None = None, settings: Sequence[str] = tuple(TopicPolicy.names())
) -> Call[dict[str, Policy]]:
    """Read what topics set themselves, by name; the defaults, topic '*', are the first. Patterns are among them.

    Args:
        topics: which, in addition to the defaults and patterns; None = all.
        settings: which settings; all unless given.
    """
    names = ("topic", *settings)
    statement = (
        f"SELECT {', '.join(names)} FROM messages.topic"  # noqa: S608 - constants only
        " WHERE %(topics)s::pg_catalog.text[] IS NULL OR topic OPERATOR(pg_catalog.=) ANY (%(topics)s)"
        " OR pg_catalog.right(topic, 1) OPERATOR(pg_catalog.=) '*'"
        " ORDER BY topic OPERATOR(pg_catalog.<>) '*', topic"
    )
    wanted = None if topics is None else [DEFAULTS, *topics]
    return Call(
        statement.encode(),
        {"topics": wanted},
        lambda rows: {name: dict(zip(settings, values, strict=True)) for name, *values in rows},
    )


def effective_policy(policies: Mapping[str, Policy], topic: str) -> Policy:
    """Return what holds for a topic, setting by setting: its own value, that of a pattern, or the default.

    None = no limit. Of patterns, the most specific that sets it counts.
    """
    rows = [policies[each] for each in (topic, *patterns_of(topic)) if each in policies and each != DEFAULTS]
    return {
        name: next((each[name] for each in rows if each.get(name) is not None), value)
        for name, value in policies[DEFAULTS].items()
    }


def change_policy(topic: str, channel: str | None, settings: Mapping[str, Any]) -> Call[bool]:
    """Set settings of a topic or of a channel of it; whether it has a row. None: it inherits the setting."""
    table, key = _row_of(topic, channel)
    changes = ", ".join(f"{name} = %({name})s" for name in settings)
    place = " AND ".join(f"{name} OPERATOR(pg_catalog.=) %({name})s" for name in key)
    statement = f"UPDATE messages.{table} SET {changes} WHERE {place} RETURNING true"  # noqa: S608 - constants only
    return Call(statement.encode(), {**key, **settings}, bool)


def add_policy(topic: str, channel: str | None, settings: Mapping[str, Any]) -> Call[bool]:
    """Add the row of a topic or of a channel of it, with these settings."""
    table, key = _row_of(topic, channel)
    row = {**key, **settings}
    values = ", ".join(f"%({name})s" for name in row)
    statement = f"INSERT INTO messages.{table} ({', '.join(row)}) VALUES ({values}) RETURNING true"  # noqa: S608
    return Call(statement.encode(), row, bool)


def _row_of(topic: str, channel: str | None) -> tuple[str, dict[str, str]]:
    return ("topic", {"topic": topic}) if channel is None else ("channel", {"topic": topic, "channel": channel})


def remove_policy(topic: str) -> Call[bool]:
    """Remove all that a topic sets itself, and its pause: it inherits the defaults. Whether there was any."""
    return Call(REMOVE_POLICY, {"topic": topic}, bool)


def payload_schemas() -> Call[list[tuple[str, str]]]:
    """Read the topics that set a payload_schema, and its text."""
    return Call(SCHEMAS, [], list)


def payload_schemas_version() -> Call[str]:
    """Read a text that is another one when a payload_schema was changed; empty: no topic has one."""
    return Call(SCHEMAS_VERSION, [], value)


def find_subscriptions(topic: str | None = None, most: int | None = None) -> Call[list[Subscription]]:
    """Read who gets copies of which topic: of all, or on either side of one. most: how many; None = all."""
    clauses = (
        "WHERE %(topic)s::pg_catalog.text IS NULL OR %(topic)s IN (f.topic, f.subscriber) ORDER BY f.topic, "
        "f.subscriber LIMIT %(most)s"
    )
    return select_call("subscription", Subscription, clauses, topic=topic, most=most)


def add_subscription(topic: str, subscriber: str) -> Call[bool]:
    """Copy what is published to a topic from now on to another; whether that is new."""
    return Call(SUBSCRIBE, {"topic": topic, "subscriber": subscriber}, bool)


def remove_subscription(topic: str, subscriber: str) -> Call[bool]:
    """End a subscription; whether there was one. What was copied stays."""
    return Call(UNSUBSCRIBE, {"topic": topic, "subscriber": subscriber}, bool)


def waiting_rates(topic: str) -> Call[dict[str, bool]]:
    """Say for each rate of a topic (dequeue, publish) whether it holds back the next message now."""
    return Call(RATES, {"topic": topic}, dict)


def ended_minutes(topics: Sequence[str]) -> Call[list[EndedMinute]]:
    """Count the attempts of topics that ended in the last hour, by minute."""
    return query_call(ENDED, EndedMinute, topics=list(topics))


def dead_counts(wanted: Sequence[str], first: Sequence[str], most: int) -> Call[list[DeadCount]]:
    """Count all messages that have died, by topic and result.

    Args:
        wanted: of which topics: names, patterns, or beginnings that end with *.
        first: the topics that matter most.
        most: how many counts.
    """
    clauses = "ORDER BY f.topic = ANY (%(first)s) DESC, f.count DESC LIMIT %(most)s"
    return query_call(DIED, DeadCount, clauses, topics=list(wanted), first=list(first), most=most)


def count_waiting(topic: str, most: int) -> Call[tuple[int, int]]:
    """Count the waiting messages of a topic, up to most; and say which id none of those that are there now exceeds."""
    return Call(WAITING, {"topic": topic, "most": most}, partial(_count_and_highest, most))


def _count_and_highest(most: int, rows: Rows) -> tuple[int, int]:
    ((count, highest_counted, highest),) = rows
    return count, highest if count >= most else highest_counted
