"""Conditions on many rows of the archive or of the queue, as text: Spark sends it to its executors, which read by COPY.

The rows are called `a`. COPY takes no parameters, and pg_stat_statements has an entry for each text of a COPY (before
PostgreSQL 16 even if only its literals differ). So values are literals, or references to values that are sent
separately, as a setting of the transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import sql

DEAD = "a.result NOT IN ('success', 'cancelled')"
# Ready messages are those that a claim considers now: not locked, and due. (A paused topic or a limit may still hold
# them back.)
READY = "a.claim_id IS NULL AND a.available_at <= now() AND (a.expires_at IS NULL OR a.expires_at > now())"
READY_COLUMNS = ("claim_id", "available_at", "expires_at")
SETTING = "pgrouse.values"
SET_VALUES = f"SELECT pg_catalog.set_config('{SETTING}', $1::text, true)"

# Takes a value and its type in PostgreSQL, and returns an expression of that type: a literal, or a reference
# (`Values.write`).
Write = Callable[[Any, str], str]
# Writes a condition.
Condition = Callable[[Write], str]
# A place in the archive, in the order of (archive_xid, id).
Key = tuple[str, int]


def literal(value: Any, type_: str = "") -> str:
    """Return a value as a literal of SQL, quoted so that it cannot be anything else."""
    quoted = sql.Literal(value).as_string(None)
    return f"{quoted}::{type_}" if type_ else quoted


class Values:
    """The values of one statement, which are sent as a setting."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def write(self, value: Any, type_: str) -> str:
        """Add a value, and return its reference in the statement.

        It is a subquery, with the conversion inside, so that it is evaluated once and not for every row.
        """
        self._values.append(value)
        place = len(self._values) - 1
        values = f"pg_catalog.current_setting('{SETTING}')::jsonb"
        if type_.endswith("[]"):
            return f"(SELECT ARRAY(SELECT pg_catalog.jsonb_array_elements_text({values} -> {place}))::{type_})"
        return f"(SELECT ({values} ->> {place})::{type_})"

    def text(self) -> str:
        """Return the value of the setting."""
        return json.dumps(self._values, default=datetime.isoformat)


@dataclass(frozen=True)
class Scope:
    """A choice of rows."""

    dead: bool = False
    topics: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    also: tuple[Condition, ...] = ()
    """More conditions."""

    def sql(self, write: Write = literal) -> str:
        """Return the condition; TRUE if every row is chosen."""
        parts = [DEAD] if self.dead else []
        if self.topics:
            parts.append(f"a.topic = ANY ({write(list(self.topics), 'text[]')}::text[])")
        if self.since:
            parts.append(f"a.archived_at >= {write(self.since, 'timestamptz')}")
        if self.until:
            parts.append(f"a.archived_at < {write(self.until, 'timestamptz')}")
        return " AND ".join([*parts, *(each(write) for each in self.also)]) or "TRUE"

    def columns(self) -> list[str]:
        """Return the columns that must be readable for it. Conditions in `also` use columns that are read anyway."""
        needed = {"result": self.dead, "topic": self.topics, "archived_at": self.since or self.until}
        return [name for name, is_needed in needed.items() if is_needed]


EVERYTHING = Scope()


def between(start: Key | None, end: Key | None, write: Write = literal) -> str:
    """Return the condition on rows of the archive: after `start`, up to and including `end`; None = no bound."""
    parts = [f"(a.archive_xid, a.id) > {_key(start, write)}"] if start else []
    parts += [f"(a.archive_xid, a.id) <= {_key(end, write)}"] if end else []
    return " AND ".join(parts) or "TRUE"


def _key(key: Key, write: Write) -> str:
    return f"({write(key[0], 'xid8')}, {write(key[1], 'bigint')})"


def between_ids(first: int | None, last: int | None, write: Write = literal) -> str:
    """Return the condition on messages: ids above `first`, up to and including `last`; None = no bound."""
    parts = [f"a.id > {write(first, 'bigint')}"] if first is not None else []
    parts += [f"a.id <= {write(last, 'bigint')}"] if last is not None else []
    return " AND ".join(parts) or "TRUE"


def visible(snapshot: str, write: Write) -> str:
    """Return the condition that a row of the archive was visible in a snapshot."""
    _, newest, running = snapshot.split(":")
    before = f"a.archive_xid < {write(newest, 'xid8')}"
    if not running:
        return before
    return f"{before} AND pg_catalog.pg_visible_in_snapshot(a.archive_xid, {write(snapshot, 'pg_snapshot')})"


def select_rows(table: str, columns: str, condition: str) -> str:
    """Return the statement that reads rows of `message_archive` or `message`, whose alias is `a`."""
    return f"SELECT {columns} FROM messages.{table} AS a WHERE {condition}"  # noqa: S608 - values are quoted
