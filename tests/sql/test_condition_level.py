"""messages.condition_level: how bad a condition is, for the dashboard and the doctor alike."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_work_that_is_not_done_is_a_failure_and_all_else_a_warning(queue: Queue) -> None:
    kinds = ("no_worker", "alerts_undelivered", "breaker", "backlog", "dead_rate", "listener_degraded", "cron_late")

    levels = {kind: queue.call("condition_level", kind) for kind in kinds}

    assert [kind for kind, level in levels.items() if level == "fail"] == ["no_worker", "alerts_undelivered"]
    assert set(levels.values()) == {"fail", "warn"}
