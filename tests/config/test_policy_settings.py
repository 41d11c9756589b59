"""The table of policy settings matches everything that depends on it: the server, the defaults, the form, the texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.types.json import Jsonb
from pydantic import ValidationError

from pgrouse.config.policy.policy_settings import (
    NESTED,
    SETTINGS,
    ChannelPolicy,
    PolicySetting,
    PolicyTable,
    TopicPolicy,
)
from pgrouse.web.page import policy_form

INSTANT = timedelta(microseconds=1)
# The columns that are no policy.
STATE = {"topic", "channel", "paused_at", "resume_at", "paused_by", "paused_reason", "updated_at"}
TABLES: dict[type[PolicyTable], str] = {TopicPolicy: "topic", ChannelPolicy: "channel"}


def edges(setting: PolicySetting) -> Iterator[tuple[Any, bool]]:
    """Yield values just inside and just outside the bounds of a setting, and whether they are inside."""
    if setting.choices:
        yield from ((each, True) for each in setting.choices)
        yield "something else", False
        return
    if setting.none is not None and not isinstance(setting.none, PolicyTable):
        yield setting.none, True
    if setting.low is None or setting.high is None:
        return
    step = INSTANT if isinstance(setting.low, timedelta) else 1 if isinstance(setting.low, int) else setting.low / 10
    yield setting.low, True
    yield setting.high, True
    yield setting.low - step, False
    yield setting.high + step * (1 if step != setting.low / 10 else 1e7), False


def as_text(value: Any) -> Any:
    """Write a duration so that the server, the file and the command line can read it."""
    return f"{value.total_seconds():.6f}s" if isinstance(value, timedelta) else value


def cases() -> Iterator[tuple[type[PolicyTable], str, Any, bool]]:
    """Yield model, setting, value, and whether the value is valid; the parts of tables within their tables."""
    for model in TABLES:
        for name, setting in SETTINGS[model].items():
            yield from ((model, name, value, inside) for value, inside in edges(setting))
            whole = {"kind": "constant"} if name == "backoff" else {}
            for part, row in SETTINGS[NESTED[name]].items() if name in NESTED else ():
                yield from ((model, name, whole | {part: as_text(value)}, inside) for value, inside in edges(row))


def is_taken(model: type[PolicyTable], name: str, value: Any) -> bool:
    """Whether the configuration accepts a value."""
    try:
        model.model_validate({name: as_text(value)}, strict=False)
    except ValidationError:
        return False
    return True


def refusal(db: psycopg.Connection[Any], model: type[PolicyTable], name: str, value: Any) -> psycopg.Error | None:
    """Return the error by which the server refuses a value, None if it takes it."""
    given = Jsonb(value) if name in ("backoff", "breaker", "payload_schema") else value
    row = {"topic": "edge", name: given} | ({"channel": "c"} if model is ChannelPolicy else {})
    query = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
        sql.Identifier("messages", TABLES[model]),
        sql.SQL(", ").join(map(sql.Identifier, row)),
        sql.SQL(", ").join(map(sql.Placeholder, row)),
    )
    try:
        with db.transaction(force_rollback=True):
            db.execute(query, row)
    except errors.DataError as error:
        return error
    return None


def names_the_fix(error: psycopg.Error, name: str) -> bool:
    """Whether an error names the setting and the fix; one of the column's type cannot."""
    by_type = isinstance(error, errors.NumericValueOutOfRange | errors.InvalidTextRepresentation)
    return by_type or (name in str(error.diag.message_primary) and error.diag.message_hint is not None)


def test_the_configuration_accepts_exactly_the_bounds_of_the_table() -> None:
    wrong = [case for case in cases() if is_taken(*case[:3]) is not case[3]]

    assert wrong == []


def test_the_server_accepts_exactly_the_bounds_of_the_table(db: psycopg.Connection[Any]) -> None:
    answers = [(case, refusal(db, *case[:3])) for case in cases()]

    assert [case for case, error in answers if (error is None) is not case[3]] == []
    assert [case for case, error in answers if error is not None and not names_the_fix(error, case[1])] == []


def test_every_number_and_duration_has_bounds() -> None:
    tested = {(model, name) for model, name, _, _ in cases()}
    every = {(model, name) for model in TABLES for name in SETTINGS[model]}

    assert tested == every


def test_the_columns_of_the_database_are_the_rows_of_the_table(db: psycopg.Connection[Any]) -> None:
    columns = {
        model: {
            name
            for (name,) in db.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0", [f"messages.{table}"]
            )
        }
        for model, table in TABLES.items()
    }

    assert {model: set(SETTINGS[model]) for model in TABLES} == {model: columns[model] - STATE for model in TABLES}


def test_the_defaults_of_a_new_database_are_those_of_the_table(db: psycopg.Connection[Any]) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, SETTINGS[TopicPolicy]))
    held = db.execute(sql.SQL("SELECT {} FROM messages.topic WHERE topic = '*'").format(names)).fetchone()

    assert held is not None
    assert dict(zip(SETTINGS[TopicPolicy], held, strict=True)) == {
        name: setting.default for name, setting in SETTINGS[TopicPolicy].items()
    }


def test_the_required_defaults_match_the_table(db: psycopg.Connection[Any]) -> None:
    def is_needed(name: str) -> bool:
        query = sql.SQL("UPDATE messages.topic SET {} = NULL WHERE topic = '*'").format(sql.Identifier(name))
        try:
            with db.transaction(force_rollback=True):
                db.execute(query)
        except errors.InvalidParameterValue:
            return True
        return False

    assert {name for name in SETTINGS[TopicPolicy] if is_needed(name)} == {
        name for name, setting in SETTINGS[TopicPolicy].items() if setting.is_required
    }


def test_the_form_has_every_setting_once_in_a_group_with_a_title() -> None:
    groups = policy_form.form_groups("mail", {}, {})
    fields = [each.name for group in groups for each in group.fields]

    assert [group.title for group in groups] == ["Attempts", "Limits", "Publishing", "Archive and dead letters"]
    assert fields == [
        f"{name}.{part}" if part else name
        for name in SETTINGS[TopicPolicy]
        for part in (SETTINGS[NESTED[name]] if name in NESTED else [""])
    ]


def test_every_value_has_an_effect_and_every_row_a_meaning() -> None:
    silent = [
        (name, value)
        for model, name, value, inside in cases()
        if model is TopicPolicy and inside and not SETTINGS[model][name].effect(_given(name, value))
    ]
    without = [(model, name) for model, rows in SETTINGS.items() for name, row in rows.items() if not row.meaning]

    assert (silent, without) == ([], [])


def _given(name: str, value: Any) -> Any:
    return value == "true" if SETTINGS[TopicPolicy][name].takes == "true/false" else value


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("max_attempts", 0, "until it succeeds"),
        ("max_attempts", 1, "fails once is dead"),
        ("max_attempts", 4, "is tried 4 times in all"),
        ("max_concurrency", 1, "At most 1 message of the topic"),
        ("max_concurrency", 2_000_000, "At most 2,000,000 messages of the topic"),
        ("dequeue_rate", 0.5, "At most 0.5 messages of the topic begin per second"),
        ("max_payload_bytes", 1000, "than 1,000 bytes are refused"),
        ("ttl", timedelta(0), "as long as it takes"),
        ("ttl", timedelta(hours=1.5), "waits longer than 1h30m"),
        ("strict_lock", False, "can still settle"),
        ("backoff", {"kind": "none"}, "at once"),
        ("backoff", {"kind": "constant", "base": "5s"}, "begins 5s after"),
        ("backoff", {"kind": "linear"}, "begins 1s after"),
        ("breaker", {}, "stops automatically"),
        ("payload_schema", True, "Any JSON"),
        ("payload_schema", {"kind": "none", "value": 1}, "does not match the schema"),
    ],
)
def test_an_effect_names_the_value_and_its_unit(setting: str, value: Any, says: str) -> None:
    assert says in SETTINGS[TopicPolicy][setting].effect(value)


def test_the_schema_for_editors_has_the_bounds_of_durations() -> None:
    described = json.dumps(TopicPolicy.model_json_schema()["properties"]["lock_duration"])

    assert "from 100ms to 7d" in described
