"""The checks in SQL: the parts of `messages.doctor()`, each with its own time limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from psycopg import sql

from pgrouse.doctor.finding import Finding, Level
from pgrouse.doctor.target import DoctorTarget

# The codes of each part, in reading order.
PARTS: dict[str, tuple[str, ...]] = {
    "ticks": ("ticks", "tick_tasks", "expired_locks", "schedules"),
    "workers": ("workers", "workers_gone", "worker_versions", "listeners", "unhandled_topics", "idle_topics"),
    "topics": ("paused", "short_locks"),
    "conditions": ("backlog", "dead_rate", "breakers", "alerts"),
    "holders": ("notify_queue", "replication_slot", "table_lock", "row_lock"),
    "snapshots": ("snapshot_held",),
    "tables": ("dead_rows", "index_bloat", "table_settings", "identities"),
    "schema": ("triggers", "indexes", "public_rights"),
    "archive": ("partitions", "default_partition", "future_xids", "exports"),
    "server": ("server_version", "durability", "autovacuum", "wraparound"),
    "connections": ("connections",),
    "settings": ("settings", "planner"),
}


def sql_check(part: str) -> Callable[[DoctorTarget], Iterator[Finding]]:
    """Return the check of one part."""
    query = sql.SQL("SELECT e.code, e.level, e.what, e.fix FROM {}() AS e").format(
        sql.Identifier("messages", f"examine_{part}")
    )

    def ask(target: DoctorTarget) -> Iterator[Finding]:
        with target.reading() as conn:
            rows = conn.execute(query).fetchall()
        for code, level, what, fix in rows:
            yield Finding(code, Level(level), what, fix)

    return ask
