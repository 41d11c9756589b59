"""Dead messages: their list, groups, counts and lineage."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors

from tests.sql.deaths import copy_of, die, die_ago
from tests.sql.queue import Queue, Row

# dead: The view messages.dead: dead messages, and the messages that replaced them.


def test_it_shows_dead_messages_with_their_content_and_error(queue: Queue) -> None:
    died = queue.publish(payload={"n": 1}, headers={"h": 1})
    queue.settle("fail", queue.claim(), ["boom"])

    (row,) = queue.rows("SELECT * FROM messages.dead")

    assert (row.id, row.result, row.error, row.payload, row.headers) == (died, "failed", "boom", {"n": 1}, {"h": 1})
    assert row.redriven_as is None


def test_success_and_cancelled_are_not_dead(queue: Queue) -> None:
    queue.publish()
    queue.settle("complete", queue.claim())
    queue.call("cancel", [queue.publish()])

    assert queue.rows("SELECT * FROM messages.dead") == []


def test_it_names_the_message_that_replaced_a_redriven_one(queue: Queue) -> None:
    died = queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])

    put_back = queue.row("SELECT * FROM messages.redrive(%s)", [[died]]).message_id

    assert queue.row("SELECT id, redriven_as FROM messages.dead") == (died, put_back)


# messages.dead_groups: dead messages by topic, result and error.


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


def test_a_group_names_the_silence_of_its_alerts(queue: Queue) -> None:
    die(queue, "a")
    die(queue, "b")

    silence = queue.call("silence", kind="dead_*", topic="a", **{"for": "1 hour"})

    assert {g.topic: g.silence_id for g in groups(queue)} == {"a": silence, "b": None}


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


# messages.dead_topics: which topics have dead messages.


def topics(queue: Queue) -> list[str]:
    return [row.topic for row in queue.rows("SELECT * FROM messages.dead_topics() AS t (topic)")]


def test_each_topic_with_dead_messages_is_listed_once_on_whatever_day_they_died(queue: Queue) -> None:
    queue.publish("lives")
    queue.settle("complete", queue.claim("lives"))
    die(queue, "b")
    die(queue, "b", settle="reject")
    die_ago(queue, "3 days", "a")
    die_ago(queue, "30 days", "C")

    assert topics(queue) == ["C", "a", "b"]


@pytest.mark.newest
def test_it_reads_the_index_topic_by_topic_and_not_all_dead_messages(own_queue: Queue) -> None:
    own_queue.publish_many(3000)
    claimed = own_queue.claim(limit=3000)
    own_queue.settle("fail", claimed, ["boom"] * 3000)
    own_queue.conn.execute("ANALYZE messages.message_archive")
    die(own_queue, "u")

    assert own_queue.buffers("SELECT * FROM messages.dead_topics()") < 200


# messages.find_dead: dead messages by what they have in common, page by page.


def found(queue: Queue, **filters: Any) -> list[int]:
    named = ", ".join(f"p_{name} => %({name})s" for name in filters)
    return [row.id for row in queue.rows(f"SELECT * FROM messages.find_dead({named})", filters)]


def test_all_dead_messages_are_found_the_oldest_first_whatever_their_topics(queue: Queue) -> None:
    new, old, middle = die(queue, "a"), die_ago(queue, "2 hours", "b"), die_ago(queue, "1 hour", "a")
    queue.publish()
    queue.settle("complete", queue.claim())

    assert found(queue) == [old, middle, new]


def test_each_filter_narrows(queue: Queue) -> None:
    wanted = die(queue, "a", "disk 7 is full")
    die(queue, "b", "disk 8 is full", settle="reject")

    for filters in (
        {"topic": "a"},
        {"result": "failed"},
        {"fingerprint": queue.archived(wanted).error_fingerprint, "topic": "a"},
        {"error": "DISK 7"},
    ):
        assert found(queue, **filters) == [wanted], filters
    assert found(queue, topic="none") == found(queue, fingerprint="0" * 16) == found(queue, error="%") == []


def test_since_is_inclusive_and_until_exclusive(queue: Queue) -> None:
    old, new = die_ago(queue, "2 hours"), die(queue)
    at = queue.archived(old).archived_at

    assert found(queue, since=at) == [old, new]
    assert found(queue, until=at) == []
    assert found(queue, until=queue.archived(new).archived_at) == [old]


def test_pages_follow_each_other_without_a_gap_also_among_messages_with_the_same_time(queue: Queue) -> None:
    queue.publish_many(3, "a")
    queue.publish_many(4, "b")
    claimed = queue.claim("a", "b")
    queue.settle("fail", claimed, ["boom"] * 7)

    first = found(queue, limit=3)
    second = found(queue, limit=3, after=first[-1])
    third = found(queue, limit=3, after=second[-1])

    assert first + second + third == sorted(c.id for c in claimed)


def test_redriven_messages_are_found_only_on_request(queue: Queue) -> None:
    died = die(queue)
    queue.rows("SELECT * FROM messages.redrive(%s)", [[died]])

    assert (found(queue), found(queue, redriven=True)) == ([], [died])


def test_a_page_of_a_topic_reads_that_page_and_not_all_dead_messages(own_queue: Queue) -> None:
    own_queue.publish_many(5000)
    own_queue.settle("fail", own_queue.claim(limit=5000), ["boom"] * 5000)
    own_queue.conn.execute("ANALYZE messages.message_archive")

    assert own_queue.buffers("SELECT * FROM messages.find_dead('t', p_limit => 10)") < 300


def test_a_page_after_a_message_that_left_the_archive_is_refused(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="message 4711 of the page before is not in the archive"):
        found(queue, after=4711)


# merge_dead_counts: messages.dead_count and merge_dead_counts: the total number of dead messages, by topic and result.

SUMS = "SELECT topic, result, sum(count)::int AS died FROM messages.dead_count GROUP BY topic, result ORDER BY 1, 2"


def die_with(queue: Queue, count: int, topic: str = "t", how: str = "fail") -> None:
    queue.publish_many(count, topic)
    queue.settle(how, queue.claim(topic, limit=count), ["boom"] * count)


def sums(queue: Queue) -> dict[tuple[str, str], int]:
    return {(row.topic, row.result): row.died for row in queue.rows(SUMS)}


def test_every_dead_result_counts_and_no_other(queue: Queue) -> None:
    die_with(queue, 3)
    die_with(queue, 2, how="reject")
    die_with(queue, 1, "u")
    queue.publish_many(4)
    queue.settle("complete", queue.claim(limit=4))
    queue.call("cancel", queue.publish_many(2))

    assert sums(queue) == {("t", "failed"): 3, ("t", "rejected"): 2, ("u", "failed"): 1}


def test_the_total_never_falls_whatever_is_deleted(queue: Queue) -> None:
    die_with(queue, 5)
    queue.later("100 days")
    queue.conn.execute("DELETE FROM messages.message_archive")
    queue.rows("SELECT * FROM messages.tick()")
    assert queue.rows("SELECT FROM messages.alert") == []

    die_with(queue, 1)

    assert sums(queue) == {("t", "failed"): 6}


def test_a_merge_leaves_one_row_of_each_and_the_same_sum(queue: Queue) -> None:
    for _ in range(3):
        die_with(queue, 2)
        die_with(queue, 1, how="reject")
    before = sums(queue)

    assert queue.call("merge_dead_counts") == 4

    assert sums(queue) == before == {("t", "failed"): 6, ("t", "rejected"): 3}
    assert queue.value("SELECT count(*) FROM messages.dead_count") == 2
    assert queue.call("merge_dead_counts") == 0, "a second merge changes nothing"


def test_what_died_more_than_a_day_ago_is_merged_into_one_row_whatever_the_time(queue: Queue) -> None:
    die_with(queue, 2)
    queue.conn.execute("UPDATE messages.dead_count SET died_at = died_at - interval '20 hours'")
    die_with(queue, 3)
    for hours in ("5 hours", "20 hours"):
        queue.call("merge_dead_counts")
        assert len(queue.rows("SELECT FROM messages.dead_count")) == 2
        queue.later(hours)

    queue.call("merge_dead_counts")

    row = queue.row("SELECT c.count, c.died_at FROM messages.dead_count AS c")
    assert (row.count, row.died_at) == (5, None)
    assert queue.call("merge_dead_counts") == 0, "what is merged is not written again"


def test_a_merge_is_bounded_by_its_limit(queue: Queue) -> None:
    for _ in range(6):
        die_with(queue, 1)

    assert queue.call("merge_dead_counts", 3) == 2

    assert sums(queue) == {("t", "failed"): 6}


def test_dead_messages_and_merges_never_wait_for_each_other(queue: Queue, other: Queue) -> None:
    for _ in range(3):
        die_with(queue, 1)
    queue.conn.execute("SET lock_timeout = '5s'")
    with other.conn.transaction():
        assert other.call("merge_dead_counts") == 2

        die_with(queue, 1)
        assert queue.call("merge_dead_counts") == 0
        assert sums(queue) == {("t", "failed"): 4}

    assert sums(queue) == {("t", "failed"): 4}


# messages.lineage: the messages that a message comes from, and those that came from it.


def lineage(queue: Queue, message_id: int) -> list[tuple[int, str, str | None]]:
    return [(row.id, row.kind, row.state) for row in queue.rows("SELECT * FROM messages.lineage(%s)", [message_id])]


def again(queue: Queue, died: int) -> int:
    """Redrive it and let it fail again."""
    queue.rows("SELECT * FROM messages.redrive(%s)", [[died]])
    (claimed,) = queue.claim()
    queue.settle("fail", [claimed], ["boom"])
    return int(claimed.id)


def test_the_whole_family_is_returned_for_each_of_its_messages(queue: Queue) -> None:
    first = die(queue)
    second = again(queue, first)
    third = again(queue, second)
    (alive,) = queue.rows("SELECT message_id FROM messages.redrive(%s)", [[third]])

    assert lineage(queue, second) == [
        (first, "ancestor", "failed"),
        (second, "this", "failed"),
        (third, "descendant", "failed"),
        (alive.message_id, "descendant", "ready"),
    ]
    assert [kind for _, kind, _ in lineage(queue, alive.message_id)] == ["ancestor"] * 3 + ["this"]
    assert [row.redrives for row in queue.rows("SELECT * FROM messages.lineage(%s)", [first])] == [0, 1, 2, 3]


def test_a_message_without_relatives_is_returned_alone(queue: Queue) -> None:
    alone = queue.publish()

    assert lineage(queue, alone) == [(alone, "this", "ready")]


def test_a_dead_letter_and_its_original_name_each_other(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = die(queue)
    copy = copy_of(queue, died).id

    assert lineage(queue, died) == [(died, "this", "failed"), (copy, "copy", "ready")]
    assert lineage(queue, copy) == [(died, "ancestor", "failed"), (copy, "this", "ready")]


def test_an_ancestor_that_has_left_the_archive_is_named_without_a_state(queue: Queue) -> None:
    first = die(queue)
    second = again(queue, first)
    queue.conn.execute("DELETE FROM messages.message_archive WHERE id = %s", [first])

    assert lineage(queue, second) == [(first, "ancestor", None), (second, "this", "failed")]


def test_a_long_chain_of_redrives_is_returned_up_to_a_hundred(queue: Queue) -> None:
    queue.policy(max_redrives=0)
    died = die(queue)
    for _ in range(102):
        died = again(queue, died)

    assert len(lineage(queue, died)) == 101


# What was redriven leaves every number of dead messages in the same way.


def test_a_redriven_message_leaves_the_count_of_the_day_and_not_the_total(queue: Queue) -> None:
    ids = [die(queue) for _ in range(3)]

    def dead_of_a_day() -> int:
        return int(queue.value("SELECT dead_last_day FROM messages.stats() WHERE topic = 't'"))

    assert dead_of_a_day() == 3

    queue.rows("SELECT * FROM messages.redrive(%s)", [ids[:2]])
    queue.rows("SELECT * FROM messages.redrive(%s)", [ids[:1]])

    assert dead_of_a_day() == 1
    assert queue.value("SELECT sum(count)::int FROM messages.dead_count") == 3
    queue.call("merge_dead_counts")
    assert dead_of_a_day() == 1


def test_a_redriven_message_is_found_among_the_dead_no_more(queue: Queue) -> None:
    gone, left = die(queue), die(queue)

    queue.rows("SELECT * FROM messages.redrive(%s)", [[gone]])

    def found(*states: str) -> list[int]:
        rows = queue.rows("SELECT id FROM messages.find_messages(p_topic => 't', p_states => %s)", [list(states)])
        return [row.id for row in rows if row.id is not None]

    assert found("failed") == [left]
    assert found("rejected", "failed", "lock_expired", "expired") == [left]


def test_many_dead_messages_are_no_problem_any_more_once_they_were_redriven_or_silenced(queue: Queue) -> None:
    queue.conn.execute("UPDATE messages.alert_threshold SET dead_per_hour = 2 WHERE topic = '*'")
    ids = [die(queue) for _ in range(4)]

    def problems() -> list[str]:
        return [row.kind for row in queue.rows("SELECT kind FROM messages.conditions()")]

    assert problems() == ["dead_rate"]

    queue.rows("SELECT * FROM messages.redrive(%s)", [ids[:1]])
    assert problems() == ["dead_rate"]
    queue.rows("SELECT * FROM messages.redrive(%s)", [ids[1:2]])
    assert problems() == []
    die(queue)
    assert problems() == ["dead_rate"]

    fingerprint = queue.value("SELECT max(error_fingerprint) FROM messages.message_archive")
    queue.call("silence", topic="t", error_fingerprint=fingerprint, **{"for": "1 hour"})

    assert problems() == []
