"""The schedules that the database holds: how they differ from those of a configuration, and how to apply those.

A schedule remembers what declares it: a file, settings, a module, or an application. Only schedules that this
configuration declared, and does no more, are removed; those made by hand or by a command are neither changed nor
removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import Any, Literal

import psycopg
from pydantic_core import from_json

from pgrouse.client.call import run
from pgrouse.client.calls.policy import lock_policies
from pgrouse.client.queries import schedule
from pgrouse.client.queries.schedule import JSON_COLUMNS
from pgrouse.config.config import Config
from pgrouse.config.policy.topic_policy import show
from pgrouse.config.schedules import ScheduleSettings
from pgrouse.values.jsonb import encode

LONGEST = 100  # characters of a value in a diff

Row = dict[str, Any]


@dataclass(frozen=True)
class ScheduleChange:
    """A schedule that is to be added, changed or removed, or kept as it was made by hand.

    It is kept though it is declared otherwise.

    Attributes:
        name: of the schedule.
        action: what is to happen.
        old: the columns that differ, as they are; of one that is removed, what declared it.
        new: the same as they are to be.
    """

    name: str
    action: Literal["add", "change", "remove", "keep"]
    old: Row = field(default_factory=dict)
    new: Row = field(default_factory=dict)

    def __str__(self) -> str:
        match self.action:
            case "add":
                return (
                    f"+ schedule {self.name}: {self.new['cron']} ({self.new['time_zone']}), topic {self.new['topic']}"
                )
            case "remove":
                return f"- schedule {self.name}, which was declared by {self.old['declared_by']}"
            case "change":
                return f"schedule {self.name}: {self._settings()}"
        fix = f"`pgrouse schedule remove {self.name}`, or declare another name"
        return f"schedule {self.name}: stays as it was made by hand, without {self._settings()}: {fix}"

    def text(self, value: Any) -> str:
        """Write a value of a column; of a schedule that is not there, there is none."""
        text = "none" if value is None else show(value)
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"

    def _settings(self) -> str:
        return ", ".join(f"{each} {self.text(self.old[each])} -> {self.text(self.new[each])}" for each in self.new)


def schedule_differences(conn: psycopg.Connection, settings: Config) -> list[ScheduleChange]:
    """Return what would have to change so that the database holds the schedules of the configuration."""
    if not settings.has_code:
        raise RuntimeError("the modules of this configuration were not read: what they declare is not known")
    held = run(conn, schedule.schedule_columns())
    changes = [change for name in settings.schedules for change in _changes(settings, name, held.get(name))]
    return [*changes, *_removals(settings, held)]


def apply_schedules(conn: psycopg.Connection, settings: Config) -> list[ScheduleChange]:
    """Make the database hold the schedules of the configuration; return what changed, and what was kept.

    Raises:
        psycopg.errors.InvalidParameterValue: the server refuses a value; its hint is the fix.
        psycopg.errors.InsufficientPrivilege: the user is no messages_operator.
    """
    changes = schedule_differences(conn, settings)
    if all(each.action == "keep" for each in changes):
        return changes  # works for a role that may only read
    with conn.transaction():
        run(conn, lock_policies())
        changes = schedule_differences(conn, settings)
        for each in changes:
            _write(conn, each)
    return changes


def _changes(settings: Config, name: str, row: Row | None) -> Iterator[ScheduleChange]:
    new = {**_columns(settings.schedules[name]), "declared_by": settings.declared_by(name)}
    if row is None:
        yield ScheduleChange(name, "add", {}, new)
        return
    old = {column: _read(column, row[column]) for column in new}
    is_by_hand = old["declared_by"] is None
    differing = [
        column for column in new if old[column] != new[column] and not (is_by_hand and column == "declared_by")
    ]
    if differing:
        action: Literal["keep", "change"] = "keep" if is_by_hand else "change"
        yield ScheduleChange(
            name, action, {each: old[each] for each in differing}, {each: new[each] for each in differing}
        )


def _removals(settings: Config, held: Mapping[str, Row]) -> Iterator[ScheduleChange]:
    for name, row in held.items():
        declared_by = row["declared_by"]
        if declared_by is not None and name not in settings.schedules and _is_ours(settings, declared_by):
            yield ScheduleChange(name, "remove", {"topic": row["topic"], "declared_by": declared_by})


def _is_ours(settings: Config, declared_by: str) -> bool:
    """Whether what declared a schedule is this configuration.

    If so, the schedule is removed when it is not declared any more.
    """
    kind, _, name = declared_by.partition(" ")
    match kind:
        case "application":
            return name == settings.database.application
        case "module":
            return settings.handlers.declares(name) or _is_gone(settings, name)
        case _:
            return declared_by == settings.own_name


def _is_gone(settings: Config, module: str) -> bool:
    """Whether a module of our own packages does not exist any more.

    One that exists may be that of another deployment.
    """
    packages = {name.partition(".")[0] for name in settings.handlers.modules}
    return module.partition(".")[0] in packages and not _exists(module)


def _exists(module: str) -> bool:
    """Whether a module can be found.

    The name comes from the database, so nothing is imported for it; find_spec would import its parents.
    """
    top, *parts = module.split(".")
    spec = find_spec(top)
    for part in parts:
        folders = spec.submodule_search_locations if spec is not None else None
        spec = None if folders is None else PathFinder.find_spec(part, list(folders))
    return spec is not None


def _columns(wanted: ScheduleSettings) -> Row:
    columns = {name: getattr(wanted, name) for name in ScheduleSettings.model_fields}
    for name in JSON_COLUMNS:
        if columns[name] is not None or name == "payload":
            columns[name] = from_json(encode(columns[name], name))
    return columns


def _read(column: str, value: Any) -> Any:
    return from_json(value) if column in JSON_COLUMNS and value is not None else value


def _write(conn: psycopg.Connection, change: ScheduleChange) -> None:
    values = {name: _adapted(name, value) for name, value in change.new.items()}
    match change.action:
        case "add":
            run(conn, schedule.add_schedule({**values, "name": change.name}))
        case "change":
            run(conn, schedule.change_schedule(change.name, values))
        case "remove":
            run(conn, schedule.delete_schedule(change.name))


def _adapted(name: str, value: Any) -> Any:
    return encode(value, name) if name in JSON_COLUMNS and (value is not None or name == "payload") else value
