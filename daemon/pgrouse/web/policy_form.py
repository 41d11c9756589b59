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

from pgrouse.client import policy_change
from pgrouse.cli.policy_args import read_policy
from pgrouse.client.policy_change import Change
from pgrouse.config.topic_policy import DEFAULTS, KNOBS, NO_LIMIT, PARTS, WHOLE, TopicPolicy, Wanted, Word, named, show_knob
from pgrouse.web.caller import Caller
from pgrouse.web.database_pool import Database, Row
from pgrouse.web.policy_effects import effect

LONGEST_SHOWN = 300
WORDS = {word.value for word in Word}


@dataclass(frozen=True)
class Field:
    """One field of the form.

    Attributes:
        name: the knob, or a part of one, as `backoff.base`.
        text: what the topic's own row has, as it is typed; "" if nothing.
        inherited: what holds while the field is empty; None: there is no limit.
        hint: what the knob means.
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
class Group:
    """Fields that belong together."""

    title: str
    fields: list[Field]


GROUPS = {
    "Attempts": (
        "max_attempts",
        "lock_for",
        "run_timeout",
        "backoff",
        "on_lock_expired_delay",
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
        "key_retry",
        "notify",
        "registered",
    ),
    "Afterwards": ("keep_success", "retention", "dead_letter", "max_redrives"),
}


@dataclass
class Draft:
    """What somebody typed, and what it comes to.

    Attributes:
        faults: what is wrong, by field.
        wanted: the policy, if nothing is wrong and anything was changed.
        changes: how it differs from what the database holds now, each with its effect in words.
    """

    faults: dict[str, str] = field(default_factory=dict)
    wanted: Wanted | None = None
    changes: list[tuple[Change, str]] = field(default_factory=list)


def groups(topic: str, own: Row, defaults: Row) -> list[Group]:
    """Return the form of a topic. own: its row, {} if it has none."""
    inherits = {} if topic == DEFAULTS else defaults
    return [
        Group(title, [each for knob in knobs for each in _fields(knob, own.get(knob), inherits.get(knob))])
        for title, knobs in GROUPS.items()
    ]


def texts(fields: list[Group]) -> dict[str, str]:
    """Return what stands in the fields."""
    return {each.name: each.text for group in fields for each in group.fields}


def _fields(knob: str, own: Any, default: Any) -> Iterator[Field]:
    if knob not in PARTS:
        yield _field(knob, TopicPolicy, knob, own, default)
        return
    for part in PARTS[knob].names():
        # A backoff is one thing: whoever sets one inherits no part of another.
        inherited = None if own is not None else (default or {}).get(part)
        yield _field(f"{knob}.{part}", PARTS[knob], part, (own or {}).get(part), inherited)


def _field(name: str, model: Any, knob: str, own: Any, default: Any) -> Field:
    described = KNOBS[model][knob]
    choices = tuple(_choices(described.annotation))
    long = name == "payload_schema"
    return Field(
        name,
        "" if own is None else _text(name, own),
        None if default is None else _text(name, default)[:LONGEST_SHOWN],
        described.description or "",
        choices,
        "long" if long else "choice" if choices else "text",
    )


def _text(name: str, value: Any) -> str:
    if name == "payload_schema":
        return json.dumps(value, ensure_ascii=False, indent=2)
    return show_knob(name, value)


def _choices(annotation: Any) -> Iterator[str]:
    """Yield the values of a knob that has few."""
    origin = get_origin(annotation)
    if origin is Literal:
        yield from get_args(annotation)
    elif annotation is bool:
        yield from ("true", "false")
    elif origin in (Union, UnionType) or hasattr(annotation, "__metadata__"):
        for kind in get_args(annotation):
            yield from _choices(kind)


def read(topic: str, typed: Mapping[str, str], was: Mapping[str, str]) -> Draft:
    """Read what was typed. was: what stood in the fields before."""
    draft = Draft()
    changed = {name for name, text in typed.items() if name in was and text.strip() != was[name].strip()}
    values: dict[str, Any] = {}
    for knob in dict.fromkeys(name.partition(".")[0] for name in changed):
        try:
            values |= _read_knob(topic, knob, typed)
        except click.UsageError as error:
            for name in changed:
                if name.partition(".")[0] == knob:
                    draft.faults[name] = error.message.removeprefix(f"{knob}: ")
    if values and not draft.faults:
        draft.wanted = Wanted(TopicPolicy(**values))
    return draft


def _read_knob(topic: str, knob: str, typed: Mapping[str, str]) -> dict[str, Any]:
    text = _composed(knob, typed) if knob in PARTS else typed[knob].strip()
    if knob == "payload_schema" and text.startswith("@"):
        # On the command line it is a file of whoever types it; here it would be one of this server.
        raise click.UsageError("give the schema itself: a file of yours is not here")
    if not text:
        text = Word.NONE.value if topic == DEFAULTS else Word.INHERIT.value
    policy = read_policy(topic, None, {knob: text})
    return named(policy, TopicPolicy)


def _composed(knob: str, typed: Mapping[str, str]) -> str:
    """Return the parts of a backoff or breaker as one value."""
    parts = {part: _number(text) for part in PARTS[knob].names() if (text := typed.get(f"{knob}.{part}", "").strip())}
    if not parts:
        return ""
    if knob == "backoff" and "kind" not in parts:
        raise click.UsageError("choose a kind: with its own parts it is a backoff of its own")
    return json.dumps(parts)


def _number(text: str) -> Any:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def look(db: Database, topic: str, draft: Draft) -> None:
    """Find out what a draft would change. Blocking."""
    if draft.wanted is not None:
        with _connection(db) as conn, conn.transaction():
            _begin(db, conn, "READ ONLY")
            draft.changes = _told(topic, policy_change.differences(conn, {topic: draft.wanted}))


def apply(db: Database, caller: Caller, topic: str, draft: Draft) -> None:
    """Make the database hold what a draft says. Blocking.

    Raises:
        psycopg.Error: the server refuses it.
    """
    if draft.wanted is not None:
        with _connection(db) as conn, conn.transaction():
            _begin(db, conn, "READ WRITE")
            conn.execute("SELECT set_config('messages.actor', %s, true)", [caller.name])
            draft.changes = _told(topic, policy_change.apply(conn, {topic: draft.wanted}))


def _connection(db: Database) -> psycopg.Connection[Any]:
    return db.connecting.connect_blocking("web policy")


def _begin(db: Database, conn: psycopg.Connection[Any], mode: str) -> None:
    conn.execute(f"SET TRANSACTION {mode}".encode())
    wait_ms = str(round(db.statement_timeout.total_seconds() * 1000))
    conn.execute("SELECT set_config('statement_timeout', %s, true)", [wait_ms])


def _told(topic: str, changes: list[Change]) -> list[tuple[Change, str]]:
    return [(each, effect(topic, each)) for each in changes]


def may_be_lifted(name: str, topic: str) -> bool:
    """Say whether a field takes the word `none`."""
    knob = name.partition(".")[0]
    return "." not in name and (knob in NO_LIMIT or (topic == DEFAULTS and knob not in WHOLE))
