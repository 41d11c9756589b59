"""The form of a topic's policy: its fields, what was typed into them, and what that would change.

An empty field inherits (of the defaults: there is none). What is typed is read by the code that reads it on the command line, so that the same is
right and wrong here and there. Only the fields that somebody changed count: what others set meanwhile stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import click
import psycopg

from pgrouse.cli.policy_args import read_policy
from pgrouse.client import policy_change
from pgrouse.client.policy_change import SettingChange
from pgrouse.config.topic_policy import (
    DEFAULTS,
    NESTED,
    NO_LIMIT,
    REQUIRED_DEFAULTS,
    SETTINGS,
    DesiredPolicy,
    Keyword,
    TopicPolicy,
    given_settings,
    show_setting,
)
from pgrouse.web.caller import Caller
from pgrouse.web.database_pool import DatabasePool, Row
from pgrouse.web.policy_effects import describe_effect

MAX_SHOWN_CHARS = 300
WORDS = {word.value for word in Keyword}


@dataclass(frozen=True)
class FormField:
    """One field of the form.

    Attributes:
        name: the setting, or a part of one, as `backoff.base`.
        text: what the topic's own row has, as it is typed; "" if nothing.
        inherited: what holds while the field is empty; None: there is no limit.
        hint: what the setting means.
        choices: all that it can be; none if it is typed freely.
        kind: "text", "choice" or "long".
    """

    name: str
    text: str
    inherited: str | None
    hint: str
    choices: tuple[str, ...] = ()
    kind: str = "text"


@dataclass(frozen=True)
class FormGroup:
    """Fields that belong together."""

    title: str
    fields: list[FormField]


GROUPS = {
    "Attempts": (
        "max_attempts",
        "lock_duration",
        "timeout",
        "backoff",
        "lock_expired_delay",
        "strict_lock",
        "breaker",
    ),
    "Limits": ("max_concurrency", "dequeue_rate", "burst", "channel_concurrency", "channel_min_interval", "ordered"),
    "Publishing": (
        "publish_rate",
        "max_depth",
        "on_full",
        "max_payload_bytes",
        "payload_schema",
        "ttl",
        "key_ttl",
        "key_on_retry",
        "notify",
        "registered",
    ),
    "Afterwards": ("archive_success", "retention", "dead_letter", "max_redrives"),
}


@dataclass
class PolicyDraft:
    """What somebody typed, and what it comes to.

    Attributes:
        errors: what is wrong, by field.
        policy: the policy, if nothing is wrong and anything was changed.
        changes: how it differs from what the database holds now, each with its describe_effect in words.
    """

    errors: dict[str, str] = field(default_factory=dict)
    policy: DesiredPolicy | None = None
    changes: list[tuple[SettingChange, str]] = field(default_factory=list)


def form_groups(topic: str, own: Row, defaults: Row) -> list[FormGroup]:
    """Return the form of a topic. own: its row, {} if it has none."""
    inherits = {} if topic == DEFAULTS else defaults
    return [
        FormGroup(
            title, [each for setting in names for each in _fields(setting, own.get(setting), inherits.get(setting))]
        )
        for title, names in GROUPS.items()
    ]


def field_texts(fields: list[FormGroup]) -> dict[str, str]:
    """Return what stands in the fields."""
    return {each.name: each.text for group in fields for each in group.fields}


def _fields(setting: str, own: Any, default: Any) -> Iterator[FormField]:
    if setting not in NESTED:
        yield _field(setting, TopicPolicy, setting, own, default)
        return
    for part in NESTED[setting].names():
        # A backoff is one thing: anyone who sets one inherits no part of another.
        inherited = None if own is not None else (default or {}).get(part)
        yield _field(f"{setting}.{part}", NESTED[setting], part, (own or {}).get(part), inherited)


def _field(name: str, model: Any, setting: str, own: Any, default: Any) -> FormField:
    described = SETTINGS[model][setting]
    choices = tuple(_choices(described.annotation))
    long = name == "payload_schema"
    return FormField(
        name,
        "" if own is None else _text(name, own),
        None if default is None else _text(name, default)[:MAX_SHOWN_CHARS],
        described.description or "",
        choices,
        "long" if long else "choice" if choices else "text",
    )


def _text(name: str, value: Any) -> str:
    if name == "payload_schema":
        return json.dumps(value, ensure_ascii=False, indent=2)
    return show_setting(name, value)


def _choices(annotation: Any) -> Iterator[str]:
    """Yield the values of a setting that has few."""
    origin = get_origin(annotation)
    if origin is Literal:
        yield from get_args(annotation)
    elif annotation is bool:
        yield from ("true", "false")
    elif origin in (Union, UnionType) or hasattr(annotation, "__metadata__"):
        for kind in get_args(annotation):
            yield from _choices(kind)


def read(topic: str, typed: Mapping[str, str], was: Mapping[str, str]) -> PolicyDraft:
    """Read what was typed. was: what stood in the fields before."""
    draft = PolicyDraft()
    changed = {name for name, text in typed.items() if name in was and text.strip() != was[name].strip()}
    values: dict[str, Any] = {}
    for setting in dict.fromkeys(name.partition(".")[0] for name in changed):
        try:
            values |= _read_setting(topic, setting, typed)
        except click.UsageError as error:
            for name in changed:
                if name.partition(".")[0] == setting:
                    draft.errors[name] = error.message.removeprefix(f"{setting}: ")
    if values and not draft.errors:
        draft.policy = DesiredPolicy(TopicPolicy(**values))
    return draft


def _read_setting(topic: str, setting: str, typed: Mapping[str, str]) -> dict[str, Any]:
    text = _composed(setting, typed) if setting in NESTED else typed[setting].strip()
    if setting == "payload_schema" and text.startswith("@"):
        # On the command line it is a file of the one that types it; here it would be one of this server.
        raise click.UsageError("give the schema itself: a file of yours is not here")
    if not text:
        text = Keyword.NONE.value if topic == DEFAULTS else Keyword.INHERIT.value
    policy = read_policy(topic, None, {setting: text})
    return given_settings(policy, TopicPolicy)


def _composed(setting: str, typed: Mapping[str, str]) -> str:
    """Return the parts of a backoff or breaker as one value."""
    parts = {
        part: _number(text) for part in NESTED[setting].names() if (text := typed.get(f"{setting}.{part}", "").strip())
    }
    if not parts:
        return ""
    if setting == "backoff" and "kind" not in parts:
        raise click.UsageError("choose a kind: with its own parts it is a backoff of its own")
    return json.dumps(parts)


def _number(text: str) -> Any:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def preview(db: DatabasePool, topic: str, draft: PolicyDraft) -> None:
    """Find out what a draft would change. Blocking."""
    if draft.policy is not None:
        with _connection(db) as conn, conn.transaction():
            _begin(db, conn, "READ ONLY")
            draft.changes = _with_effects(topic, policy_change.differences(conn, {topic: draft.policy}))


def apply(db: DatabasePool, caller: Caller, topic: str, draft: PolicyDraft) -> None:
    """Make the database hold what a draft says. Blocking.

    Raises:
        psycopg.Error: the server refuses it.
    """
    if draft.policy is not None:
        with _connection(db) as conn, conn.transaction():
            _begin(db, conn, "READ WRITE")
            conn.execute("SELECT set_config('messages.actor', %s, true)", [caller.name])
            draft.changes = _with_effects(topic, policy_change.apply(conn, {topic: draft.policy}))


def _connection(db: DatabasePool) -> psycopg.Connection[Any]:
    return db.connector.connect_blocking("web policy")


def _begin(db: DatabasePool, conn: psycopg.Connection[Any], mode: str) -> None:
    conn.execute(f"SET TRANSACTION {mode}".encode())
    wait_ms = str(round(db.statement_timeout.total_seconds() * 1000))
    conn.execute("SELECT set_config('statement_timeout', %s, true)", [wait_ms])


def _with_effects(topic: str, changes: list[SettingChange]) -> list[tuple[SettingChange, str]]:
    return [(each, describe_effect(topic, each)) for each in changes]


def can_be_unlimited(name: str, topic: str) -> bool:
    """Say whether a field takes the word `none`."""
    setting = name.partition(".")[0]
    return "." not in name and (setting in NO_LIMIT or (topic == DEFAULTS and setting not in REQUIRED_DEFAULTS))
