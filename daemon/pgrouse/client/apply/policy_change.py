"""The policies that the database holds: how they differ from a file or a command, and how to apply those.

What is not named is left alone. All of it is one transaction under the lock that every change of a policy takes: a
process that applies the same at the same time waits, and then finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from pgrouse.client.call import run
from pgrouse.client.calls.policy import lock_policies
from pgrouse.client.queries.channel import find_channel_policies
from pgrouse.client.queries.topic import (
    add_policy,
    add_subscription,
    change_policy,
    find_policies,
    find_subscriptions,
)
from pgrouse.config.duration import parse
from pgrouse.config.policy.policy_settings import NESTED, Backoff, ChannelPolicy, PolicyTable, TopicPolicy
from pgrouse.config.policy.topic_policy import DEFAULTS, DesiredPolicy, column, given_settings, show, show_setting
from pgrouse.config.setting_types import Keyword

JSON_SETTINGS = ("backoff", "breaker", "payload_schema")
LONGEST = 100  # characters of a value in a diff

Row = dict[str, Any]


@dataclass(frozen=True)
class SettingChange:
    """One setting that is to be set otherwise than it is, or (setting `subscription`) a topic to subscribe to.

    Attributes:
        old: what the column holds; None = it inherits, or of the defaults: there is none.
        new: what it is to hold.
    """

    topic: str
    channel: str | None
    setting: str
    old: Any
    new: Any

    def __str__(self) -> str:
        where = self.topic if self.channel is None else f"{self.topic}, channel {self.channel}"
        if self.setting == "subscription":
            return f"{where}: + subscription to {self.new}"
        return f"{where}: {self.setting} {self.text(self.old)} -> {self.text(self.new)}"

    def text(self, value: Any) -> str:
        """Write a value of this setting."""
        if value is None:
            return show(Keyword.NONE if self.topic == DEFAULTS else Keyword.INHERIT)
        text = show_setting(self.setting, _plain(value))
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def differences(conn: psycopg.Connection, wanted: Mapping[str, DesiredPolicy]) -> list[SettingChange]:
    """Return what would have to change so that the database holds what is wanted."""
    found: list[SettingChange] = []
    policies = run(conn, find_policies())
    # The defaults first: a part of a backoff is put over what holds for the topic, and that may be theirs.
    for topic in sorted(wanted, key=lambda topic: topic != DEFAULTS):
        found += _of_policy(topic, wanted[topic].policy, policies)
    return [*found, *_of_channels(conn, wanted), *_of_subscriptions(conn, wanted)]


def apply(conn: psycopg.Connection, wanted: Mapping[str, DesiredPolicy]) -> list[SettingChange]:
    """Make the database hold what is wanted; return what changed.

    Raises:
        psycopg.errors.InvalidParameterValue: the server refuses a value; its hint is the fix.
        psycopg.errors.InsufficientPrivilege: the user is no messages_operator.
        psycopg.errors.LockNotAvailable: another transaction has changed a policy and is still open.
    """
    if not differences(conn, wanted):
        return []  # works for a role that may only read
    with conn.transaction():
        run(conn, lock_policies())
        changes = differences(conn, wanted)
        for topic, channel in dict.fromkeys((each.topic, each.channel) for each in changes):
            _write(conn, topic, channel, [each for each in changes if (each.topic, each.channel) == (topic, channel)])
    return changes


def _of_policy(topic: str, policy: TopicPolicy, policies: dict[str, Row]) -> Iterator[SettingChange]:
    row = policies.setdefault(topic, dict.fromkeys(TopicPolicy.names()))
    for setting, value in given_settings(policy, TopicPolicy).items():
        new = column(topic, setting, value)
        if isinstance(new, PolicyTable):
            new = _whole(new, row[setting] or policies[DEFAULTS][setting] or {})
        old, row[setting] = row[setting], new
        if not _same(setting, old, new):
            yield SettingChange(topic, None, setting, old, new)


def _whole(given: PolicyTable, effective: Row) -> Row:
    """Return a backoff or breaker with the parts that are given over those that hold.

    A backoff's `kind` begins a new one.
    """
    parts = {name: _json(value) for name, value in given_settings(given, type(given)).items()}
    return parts if isinstance(given, Backoff) and given.kind else effective | parts


def _of_channels(conn: psycopg.Connection, wanted: Mapping[str, DesiredPolicy]) -> Iterator[SettingChange]:
    if not any(each.channels for each in wanted.values()):
        return
    held = run(conn, find_channel_policies(list(wanted)))
    for topic, each in wanted.items():
        for channel, policy in each.channels.items():
            row = held.get((topic, channel), {})
            for setting, value in given_settings(policy, ChannelPolicy).items():
                old, new = row.get(setting), column(topic, setting, value)
                if old != new:
                    yield SettingChange(topic, channel, setting, old, new)


def _of_subscriptions(conn: psycopg.Connection, wanted: Mapping[str, DesiredPolicy]) -> Iterator[SettingChange]:
    if not any(each.subscriptions for each in wanted.values()):
        return
    held = {(each.subscriber, each.topic) for each in run(conn, find_subscriptions())}
    for subscriber, each in wanted.items():
        for topic in dict.fromkeys(each.subscriptions):
            if (subscriber, topic) not in held:
                yield SettingChange(subscriber, None, "subscription", None, topic)


def _same(setting: str, old: Any, new: Any) -> bool:
    if setting in NESTED and old and new:
        return {k: _time(v) for k, v in old.items()} == {k: _time(v) for k, v in new.items()}
    return bool(old == new) and isinstance(old, bool) == isinstance(new, bool)


def _time(part: Any) -> Any:
    """Return a part of a backoff or breaker so that "60s" and "1m" are the same.

    What is written otherwise stays as it is.
    """
    try:
        return parse(part)
    except ValueError:
        return part


def _json(value: Any) -> Any:
    return show(value) if isinstance(value, timedelta) else value


def _plain(value: Any) -> Any:
    return value if not isinstance(value, PolicyTable) else given_settings(value, type(value))


def _write(conn: psycopg.Connection, topic: str, channel: str | None, changes: list[SettingChange]) -> None:
    for each in changes:
        if each.setting == "subscription":
            run(conn, add_subscription(each.new, topic))
    settings = {each.setting: _adapted(each.setting, each.new) for each in changes if each.setting != "subscription"}
    # The lock keeps others from adding it at the same time.
    if settings and not run(conn, change_policy(topic, channel, settings)):
        run(conn, add_policy(topic, channel, settings))


def _adapted(setting: str, value: Any) -> Any:
    return Jsonb(value) if setting in JSON_SETTINGS and value is not None else value
