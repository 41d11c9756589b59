"""The form of a topic's policy: its fields, what was typed into them, and what that would change.

An empty field inherits (of the defaults: there is none). What is typed is read by the code that reads it on the command
line, so that the same is right and wrong here and there. Only the fields that the user changed count: what others set
in the meantime stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg

from pgrouse.client.apply import policy_change
from pgrouse.client.apply.policy_change import SettingChange
from pgrouse.config.policy.policy_settings import NESTED, SETTINGS, PolicySetting, TopicPolicy
from pgrouse.config.policy.policy_text import InvalidPolicy, read_policy
from pgrouse.config.policy.topic_policy import DEFAULTS, DesiredPolicy, given_settings, show_setting
from pgrouse.config.setting_types import Keyword
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import DatabasePool, Row

MAX_SHOWN_CHARS = 300
# A browser cannot name a file: what the form takes instead.
TAKES_HERE = {"payload_schema": "a JSON Schema, or true"}


@dataclass(frozen=True)
class FormField:
    """One field of the form.

    Attributes:
        name: the setting, or a part of one, as `backoff.base`.
        text: what the topic's own row has, as it is typed; "" if nothing.
        inherited: what holds while the field is empty; None: there is no limit.
        hint: what the setting means, and its bounds.
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


@dataclass
class PolicyDraft:
    """What the user typed, and what it means.

    Attributes:
        errors: what is wrong, by field.
        policy: the policy, if nothing is wrong and anything was changed.
        changes: how it differs from what the database holds now, each with its effect in words.
    """

    errors: dict[str, str] = field(default_factory=dict)
    policy: DesiredPolicy | None = None
    changes: list[tuple[SettingChange, str]] = field(default_factory=list)


def form_groups(topic: str, own: Row, defaults: Row) -> list[FormGroup]:
    """Return the form of a topic, in the order of the table. own: its row, {} if it has none."""
    inherits = {} if topic == DEFAULTS else defaults
    groups: dict[str, FormGroup] = {}
    for name, setting in SETTINGS[TopicPolicy].items():
        group = groups.setdefault(setting.group, FormGroup(setting.group, []))
        group.fields.extend(_fields(setting, own.get(name), inherits.get(name)))
    return list(groups.values())


def field_texts(fields: list[FormGroup]) -> dict[str, str]:
    """Return the contents of the fields."""
    return {each.name: each.text for group in fields for each in group.fields}


def _fields(setting: PolicySetting, own: Any, default: Any) -> Iterator[FormField]:
    if setting.name not in NESTED:
        yield _field(setting.name, setting, own, default)
        return
    for part, row in SETTINGS[NESTED[setting.name]].items():
        # A backoff is one thing: anyone who sets one inherits no part of another.
        inherited = None if own is not None else (default or {}).get(part)
        yield _field(f"{setting.name}.{part}", row, (own or {}).get(part), inherited)


def _field(name: str, setting: PolicySetting, own: Any, default: Any) -> FormField:
    long = name == "payload_schema"
    return FormField(
        name,
        "" if own is None else _text(name, own),
        None if default is None else _text(name, default)[:MAX_SHOWN_CHARS],
        setting.meaning if setting.choices else f"{setting.meaning} [{TAKES_HERE.get(name, setting.takes)}]",
        setting.choices,
        "long" if long else "choice" if setting.choices else "text",
    )


def _text(name: str, value: Any) -> str:
    if name == "payload_schema":
        return json.dumps(value, ensure_ascii=False, indent=2)
    return show_setting(name, value)


def read(topic: str, typed: Mapping[str, str], was: Mapping[str, str]) -> PolicyDraft:
    """Read what was typed. was: what stood in the fields before."""
    draft = PolicyDraft()
    changed = {name for name, text in typed.items() if name in was and text.strip() != was[name].strip()}
    values: dict[str, Any] = {}
    for setting in dict.fromkeys(name.partition(".")[0] for name in changed):
        try:
            values |= _read_setting(topic, setting, typed)
        except InvalidPolicy as error:
            for name in changed:
                if name.partition(".")[0] == setting:
                    draft.errors[name] = str(error).removeprefix(f"{setting}: ")
    if values and not draft.errors:
        draft.policy = DesiredPolicy(TopicPolicy(**values))
    return draft


def _read_setting(topic: str, setting: str, typed: Mapping[str, str]) -> dict[str, Any]:
    text = _composed(setting, typed) if setting in NESTED else typed[setting].strip()
    if setting == "payload_schema" and text.startswith("@"):
        # On the command line it is a file of the user; here it would be one of this server.
        raise InvalidPolicy("paste the schema itself: this server cannot read your files")
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
        raise InvalidPolicy("choose a kind: with its own parts it is a backoff of its own")
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
    return [(each, _describe_effect(topic, each)) for each in changes]


def _describe_effect(topic: str, change: SettingChange) -> str:
    if change.new is not None:
        return SETTINGS[TopicPolicy][change.setting].effect(change.new)
    if topic == DEFAULTS:
        return "Topics without a value of their own have none."
    return "The topic inherits the default, also when it changes later."


def can_be_unlimited(name: str, topic: str) -> bool:
    """Say whether a field takes the word `none`."""
    setting = SETTINGS[TopicPolicy].get(name)  # none for a part of a table
    return setting is not None and (setting.none is not None or (topic == DEFAULTS and not setting.is_required))
