"""messages.dead_groups: dead messages by topic, result and error."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors

from tests.sql.deaths import die, die_ago
from tests.sql.queue import Queue, Row


def groups(queue: Queue, **options: Any) -> list[Row]:
    named = ", ".join(f"p_{name} => %({name})s" for name in options)
    return queue.rows(f"SELECT * FROM messages.dead_groups({named})", options)


def test_errors_that_differ_only_in_particulars_are_one_group_per_topic_and_result(queue: Queue) -> None:
    first, last = die(queue, "a", "disk 7 is full"), die(queue, "a", "disk 8 is full")
    rejected = die(queue, "a", "disk 9 is full", settle="reject")
    other = die(queue, "b", "disk 1 is full")
    die(queue, "a", "no route")

    found = {(g.topic, g.result, g.sample_error): g for g in groups(queue)}

    assert {of: (g.count, g.sample_id) for of, g in found.items() if of[2] != "no route"} == {
        ("a", "failed", "disk 8 is full"): (2, last),
        ("a", "rejected", "disk 9 is full"): (1, rejected),
        ("b", "failed", "disk 1 is full"): (1, other),
    }
    group = found["a", "failed", "disk 8 is full"]
    assert group.error_fingerprint == queue.archived(first).error_fingerprint
    assert (group.first_seen, group.last_seen) == (queue.archived(first).archived_at, queue.archived(last).archived_at)
    assert len(found) == 4


def test_the_group_with_the_latest_message_comes_first(queue: Queue) -> None:
    die(queue, "new")
    die_ago(queue, "1 hour", "old")

    assert [g.topic for g in groups(queue)] == ["new", "old"]


def test_the_trend_counts_equal_parts_of_the_time_the_oldest_first(queue: Queue) -> None:
    for ago in ("1 minute", "30 minutes", "90 minutes", "5 hours 30 minutes", "7 hours"):
        die_ago(queue, ago)

    (group,) = groups(queue, since="6 hours", bars=6)

    assert (group.trend, group.count) == ([1, 0, 0, 0, 1, 2], 4)


def test_redriven_messages_are_counted_separately(queue: Queue) -> None:
    died = [die(queue) for _ in range(3)]
    queue.rows("SELECT * FROM messages.redrive(%s)", [died[:2]])

    (group,) = groups(queue)

    assert (group.count, group.redriven) == (3, 2)


def test_beyond_the_bound_numbers_are_minimums_and_a_flood_hides_no_other_topic(queue: Queue) -> None:
    queue.publish_many(50, "flood")
    queue.settle("fail", queue.claim("flood"), ["boom"] * 50)
    die_ago(queue, "1 hour", "quiet")

    found = {g.topic: (g.count, g.at_least) for g in groups(queue, bound=20)}

    assert found == {"flood": (20, True), "quiet": (1, False)}


@pytest.mark.newest
def test_the_bound_limits_what_is_read(own_queue: Queue) -> None:
    own_queue.publish_many(5000)
    own_queue.settle("fail", own_queue.claim(limit=5000), ["boom"] * 5000)
    own_queue.conn.execute("ANALYZE messages.message_archive")

    assert own_queue.buffers("SELECT * FROM messages.dead_groups(p_bound => 20)") < 500


def test_filters_select_messages(queue: Queue) -> None:
    die(queue, "a")
    die(queue, "a", settle="reject")
    die(queue, "b")

    assert {g.result for g in groups(queue, topic="a")} == {"failed", "rejected"}
    assert [g.topic for g in groups(queue, result="rejected")] == ["a"]


@pytest.mark.parametrize(
    ("setting", "value"), [("since", "0"), ("since", None), ("bars", 0), ("bars", 201), ("bound", 0), ("bound", None)]
)
def test_a_setting_that_is_out_of_range_is_refused(queue: Queue, setting: str, value: Any) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=f"{setting} of dead groups (is|are) ") as caught:
        groups(queue, **{setting: value})

    assert caught.value.diag.message_hint.startswith("use ")
