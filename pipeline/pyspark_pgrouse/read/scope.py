"""A choice of rows of the archive, as a condition of SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import sql

from pyspark_pgrouse.options import Mode, Options

DEAD = "a.result NOT IN ('success', 'cancelled')"

# Takes a value and its type in PostgreSQL, and returns an expression of that type: a literal, or a reference
# (`values.Values`).
Write = Callable[[Any, str], str]


def literal(value: Any, type_: str = "") -> str:
    """Return a value as a literal of SQL, quoted so that it cannot be anything else."""
    quoted = sql.Literal(value).as_string(None)
    return f"{quoted}::{type_}" if type_ else quoted


@dataclass(frozen=True)
class Scope:
    """A choice of rows."""

    dead: bool = False
    topics: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    also: tuple[Callable[[Write], str], ...] = ()
    """More conditions, about the alias `a`."""

    @classmethod
    def of(cls, options: Options, also: tuple[Callable[[Write], str], ...] = ()) -> Scope:
        """Return the choice of the options."""
        return cls(options.mode is Mode.DEAD, options.topics, options.since, options.until, also)

    def sql(self, write: Write = literal) -> str:
        """Return the condition, about the alias `a`; TRUE if every row is chosen."""
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
