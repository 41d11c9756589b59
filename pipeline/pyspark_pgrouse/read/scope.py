"""Which rows of the archive are meant, as a condition of SQL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import sql

from pyspark_pgrouse.options import Mode, Options

DEAD = "a.result NOT IN ('success', 'cancelled')"


@dataclass(frozen=True)
class Scope:
    """A choice of rows. `sql()` is complete text: the readers run it by COPY, which takes no parameters."""

    dead: bool = False
    topics: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    also: tuple[str, ...] = ()
    """More conditions, as SQL about the alias `a`."""

    @classmethod
    def of(cls, options: Options, also: tuple[str, ...] = ()) -> Scope:
        """Return what the options choose."""
        return cls(options.mode is Mode.DEAD, options.topics, options.since, options.until, also)

    def sql(self) -> str:
        """Return the condition, about the alias `a`; TRUE if every row is meant."""
        parts = [DEAD] if self.dead else []
        if self.topics:
            parts.append(f"a.topic IN ({', '.join(literal(topic) for topic in self.topics)})")
        if self.since:
            parts.append(f"a.archived_at >= {literal(self.since)}")
        if self.until:
            parts.append(f"a.archived_at < {literal(self.until)}")
        return " AND ".join([*parts, *self.also]) or "TRUE"

    def columns(self) -> list[str]:
        """Return the columns that must be readable for it. What is in `also` is about columns that are read anyway."""
        needed = {"result": self.dead, "topic": self.topics, "archived_at": self.since or self.until}
        return [name for name, is_needed in needed.items() if is_needed]


EVERYTHING = Scope()


def literal(value: Any) -> str:
    """Return a value as a literal of SQL, quoted so that it cannot be anything else."""
    return sql.Literal(value).as_string(None)
