"""What SQL can see: the parts of `messages.doctor()`, each with a time limit of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from psycopg import sql

from pgrouse.doctor.finding import Finding, Level
from pgrouse.doctor.target import Subject

# Which codes each part speaks of. In the order in which one reads them.
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


def look(part: str) -> Callable[[Subject], Iterator[Finding]]:
    """Return what asks one part."""
    query = sql.SQL("SELECT e.code, e.level, e.what, e.mend FROM {}() AS e").format(
        sql.Identifier("messages", f"examine_{part}")
    )

    def ask(subject: Subject) -> Iterator[Finding]:
        with subject.reading() as conn:
            rows = conn.execute(query).fetchall()
        for code, level, what, mend in rows:
            yield Finding(code, Level(level), what, mend)

    return ask
