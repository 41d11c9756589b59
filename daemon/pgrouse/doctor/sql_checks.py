"""The checks in SQL: the parts of the function doctor, each with its own time limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pgrouse.client.call import Call, run
from pgrouse.client.calls.monitoring import doctor
from pgrouse.doctor.finding import Finding, Level
from pgrouse.doctor.target import DoctorTarget

# The codes of each part, in reading order.
Examine = Callable[[], Call[list[doctor.FindingRow]]]
PARTS: dict[Examine, tuple[str, ...]] = {
    doctor.examine_ticks: ("ticks", "tick_tasks", "expired_locks", "schedules"),
    doctor.examine_workers: (
        "workers",
        "workers_gone",
        "worker_versions",
        "listeners",
        "unhandled_topics",
        "idle_topics",
    ),
    doctor.examine_topics: ("paused", "short_locks", "many_topics"),
    doctor.examine_conditions: ("backlog", "dead_rate", "breakers", "alerts"),
    doctor.examine_holders: ("notify_queue", "replication_slot", "table_lock", "row_lock"),
    doctor.examine_snapshots: ("snapshot_held",),
    doctor.examine_tables: ("dead_rows", "index_bloat", "table_settings", "identities"),
    doctor.examine_schema: ("triggers", "indexes", "public_rights"),
    doctor.examine_archive: ("partitions", "default_partition", "future_xids", "exports"),
    doctor.examine_server: ("server_version", "durability", "autovacuum", "wraparound"),
    doctor.examine_connections: ("connections",),
    doctor.examine_settings: ("settings", "planner"),
}


def sql_check(examine: Examine) -> Callable[[DoctorTarget], Iterator[Finding]]:
    """Return the check of one part."""

    def ask(target: DoctorTarget) -> Iterator[Finding]:
        with target.reading() as conn:
            rows = run(conn, examine())
        for each in rows:
            yield Finding(each.code, Level(each.level), each.what, each.fix)

    return ask
