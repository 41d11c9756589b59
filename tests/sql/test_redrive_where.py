"""messages.redrive_where: redrives dead messages by filters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.deaths import die, die_ago
from tests.sql.queue import Queue


def redriven(queue: Queue, **filters: Any) -> list[int]:
    named = ", ".join(f"p_{name} => %({name})s" for name in filters)
    rows = queue.rows(f"SELECT * FROM messages.redrive_where({named}) WHERE outcome = 'redriven'", filters)
    return [row.archived_id for row in rows]


def test_without_a_filter_all_are_redriven(queue: Queue) -> None:
    died = [die(queue, "a"), die(queue, "b")]

    assert redriven(queue) == died


def test_several_filters_are_combined(queue: Queue) -> None:
    wanted = die(queue, "a", "disk 7 is full")
    die(queue, "a", "no route")
    die(queue, "b", "disk 8 is full")
    die(queue, "a", "disk 9 is full", settle="reject")
    fingerprint = queue.archived(wanted).error_fingerprint

    assert redriven(queue, topic="a", result="failed", fingerprint=fingerprint, error="DISK") == [wanted]


def test_a_limit_redrives_the_oldest_and_the_next_call_the_others(queue: Queue) -> None:
    new, old = die(queue), die_ago(queue, "1 hour")

    assert redriven(queue, limit=1) == [old]
    assert redriven(queue, limit=1) == [new]
    assert redriven(queue, limit=1) == []


def test_rate_and_force_work_as_for_single_messages(queue: Queue) -> None:
    died = [die(queue), die(queue)]
    queue.conn.execute("UPDATE messages.message_archive SET redrives = 10")

    assert redriven(queue) == []
    assert redriven(queue, force=True, rate=0.5) == died
    assert queue.value("SELECT extract(epoch FROM max(available_at) - min(available_at)) FROM messages.message") == 2


@pytest.mark.parametrize("limit", [-1, None])
def test_an_invalid_limit_is_refused(queue: Queue, limit: Any) -> None:
    with pytest.raises(Exception, match="limit of dead messages is"):
        redriven(queue, limit=limit)
