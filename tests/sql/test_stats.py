"""messages.stats: the numbers of messages by topic, at a cost that does not grow with them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.sql.queue import Queue


def stats(queue: Queue, bound: int = 10000) -> dict[str, Any]:
    return {row.topic: row for row in queue.rows("SELECT * FROM messages.stats(%s)", [bound])}


def test_an_empty_queue_has_no_topic(queue: Queue) -> None:
    assert stats(queue) == {}


def test_it_counts_ready_delayed_and_running_messages(queue: Queue) -> None:
    queue.publish_many(2)
    queue.claim()
    queue.publish_many(3, priority=1)
    queue.publish_many(4, channel="c")
    queue.publish_many(5, wait="1 hour")
    queue.publish_many(6, wait="1 hour", channel="c")

    row = stats(queue)["t"]

    assert (row.ready, row.delayed, row.running, row.dead_last_day) == (7, 11, 2, 0)


def test_messages_with_a_channel_are_counted_whatever_the_number(queue: Queue) -> None:
    # In the order of the channels the delayed of the first come before the ready of the second.
    queue.publish_many(12, wait="1 hour", channel="a")
    queue.publish_many(15, channel="b")

    row = stats(queue, 20)["t"]

    assert (row.ready, row.delayed) == (15, 12)


def rows_of(queue: Queue, state: str) -> int:
    sign = {"ready": "<=", "delayed": ">"}[state]
    query = f"SELECT count(*) FROM messages.message AS m WHERE m.topic = 't' AND m.available_at {sign} messages.now()"
    return int(queue.value(query))


@pytest.mark.parametrize("channel", [None, "c"])
def test_beyond_the_bound_a_count_is_an_estimate_from_a_sample(own_queue: Queue, channel: str | None) -> None:
    for priority in (1, 5):
        own_queue.publish_many(1_500, priority=priority, channel=channel)
    own_queue.publish_many(2_000, wait="1 hour", channel=channel)
    own_queue.publish_many(70, "small")

    found = stats(own_queue, 100)

    # A table of so few pages is read as a whole: the estimate is the count.
    assert (
        (found["t"].ready, found["t"].delayed)
        == (rows_of(own_queue, "ready"), rows_of(own_queue, "delayed"))
        == (3_000, 2_000)
    )
    assert (found["small"].ready, found["small"].delayed) == (70, 0)


def test_an_estimate_is_never_below_the_bound(own_queue: Queue) -> None:
    own_queue.publish_many(50)
    own_queue.conn.execute(
        "CREATE OR REPLACE FUNCTION messages.estimate_waiting(p_pages integer DEFAULT 1000)"
        " RETURNS TABLE (topic text, ready bigint, delayed bigint, ready_runs bigint, delayed_runs bigint)"
        " LANGUAGE sql STABLE AS $$ SELECT 't', 3::bigint, 0::bigint, 30::bigint, 30::bigint $$"
    )

    assert stats(own_queue, 20)["t"].ready == 20


def test_what_the_sample_hardly_saw_is_counted_within_a_budget(own_queue: Queue) -> None:
    for topic in ("a", "b"):
        own_queue.publish_many(150, topic)
    own_queue.conn.execute(
        "CREATE OR REPLACE FUNCTION messages.estimate_waiting(p_pages integer DEFAULT 1000)"
        " RETURNS TABLE (topic text, ready bigint, delayed bigint, ready_runs bigint, delayed_runs bigint)"
        " LANGUAGE sql STABLE AS $$ SELECT 'a', 700::bigint, 0::bigint, 4::bigint, 0::bigint $$"
    )

    found = stats(own_queue, 20)
    assert (found["a"].ready, found["b"].ready) == (150, 150)
    # With many such topics each has no more than the bound.
    own_queue.conn.execute(
        "INSERT INTO messages.topic (topic) SELECT format('t%s', n) FROM generate_series(1, 50) AS n"
    )
    found = stats(own_queue, 20)
    assert (found["a"].ready, found["b"].ready) == (700, 20)


def test_it_counts_the_dead_messages_of_the_last_day(queue: Queue) -> None:
    queue.publish_many(3)
    queue.settle("fail", queue.claim(limit=2), ["boom"] * 2)
    queue.settle("complete", queue.claim())
    assert stats(queue)["t"].dead_last_day == 2

    queue.later("23 hours")
    assert stats(queue)["t"].dead_last_day == 2
    queue.later("25 hours")
    assert stats(queue).get("t") is None


def kill(queue: Queue, topic: str, count: int) -> None:
    queue.publish_many(count, topic)
    queue.settle("fail", queue.claim(topic, limit=count), ["boom"] * count)


DEAD_ROWS = """
  SELECT a.topic, count(*) AS count FROM messages.message_archive AS a
  WHERE a.result NOT IN ('success', 'cancelled') AND a.archived_at > messages.now() - interval '1 day'
  GROUP BY a.topic"""


def dead(queue: Queue, bound: int) -> dict[str, int]:
    return {topic: row.dead_last_day for topic, row in stats(queue, bound).items()}


def test_dead_messages_are_counted_topic_by_topic_and_beyond_any_bound(queue: Queue) -> None:
    for topic in ("a", "b", "c"):
        kill(queue, topic, 25)
    kill(queue, "d", 3)

    assert (
        dead(queue, 20)
        == {row.topic: row.count for row in queue.rows(DEAD_ROWS)}
        == {"a": 25, "b": 25, "c": 25, "d": 3}
    )


def test_the_count_of_a_topic_never_falls_while_more_die(queue: Queue) -> None:
    # The last of the alphabet first: the first topic that is read takes nothing from the others.
    before = {"c": 0, "b": 0, "a": 0}
    for _ in range(4):
        for topic in ("c", "b", "a"):
            kill(queue, topic, 8)
            queue.call("merge_dead_counts")
            now = dead(queue, 20)
            assert all(now.get(each, 0) >= before[each] for each in before), (before, now)
            assert now[topic] == before[topic] + 8
            before.update(now)


def test_the_number_of_dead_messages_adds_nothing_to_its_cost(queue: Queue) -> None:
    kill(queue, "t", 1)
    few = queue.buffers("SELECT * FROM messages.stats()")
    kill(queue, "t", 3_000)
    # The pages that they leave belong to the messages that wait.
    queue.conn.execute("VACUUM messages.message")

    assert queue.buffers("SELECT * FROM messages.stats()") < few + 150


@pytest.mark.parametrize("channel", [None, "c"])
def test_it_has_the_age_of_the_oldest_ready_message(queue: Queue, channel: str | None) -> None:
    for wait in ("-10 s", "-1 hour", "1 hour"):
        queue.publish(wait=wait, channel=channel)

    assert stats(queue)["t"].oldest_ready_s == pytest.approx(3600, abs=60)


def test_without_ready_messages_there_is_no_age(queue: Queue) -> None:
    queue.publish(wait="1 hour")

    assert stats(queue)["t"].oldest_ready_s is None


def test_it_lists_topics_that_only_run_died_or_have_a_policy(queue: Queue) -> None:
    queue.publish("running")
    queue.claim("running")
    queue.publish("dead")
    queue.settle("fail", queue.claim("dead"), ["boom"])
    queue.policy("planned", max_attempts=2)

    found = stats(queue)

    assert list(found) == ["dead", "planned", "running"]
    assert (found["running"].running, found["planned"].ready) == (1, 0)


def test_it_shows_whether_a_live_worker_handles_the_topic(queue: Queue) -> None:
    queue.publish("a")
    queue.publish("b")
    queue.call("register_worker", "w", "host", 42, "1.0", ["a"], 10)

    assert [row.handled for row in stats(queue).values()] == [True, False]


def test_a_retried_message_is_delayed(queue: Queue) -> None:
    queue.publish(max_attempts=2)
    queue.settle("retry", queue.claim(), ["boom"], [timedelta(hours=1)])

    assert (stats(queue)["t"].ready, stats(queue)["t"].delayed) == (0, 1)


def test_its_cost_is_bounded_however_many_messages_there_are(own_queue: Queue) -> None:
    own_queue.publish_many(30_000)
    own_queue.publish_many(30_000, channel="c")

    assert own_queue.buffers("SELECT * FROM messages.stats(100)") < 1500


def limited(queue: Queue, limit: int, *topics: str) -> list[str]:
    rows = queue.rows("SELECT topic FROM messages.stats(1000, %s, %s)", [list(topics) or ["*"], limit])
    return [row.topic for row in rows]


def test_of_more_topics_than_its_limit_it_returns_those_that_matter_most(queue: Queue) -> None:
    for topic in ("a", "b", "c", "d"):
        queue.publish(topic)
    queue.publish_many(3, "many")
    queue.publish("x.declared")
    queue.policy("x.declared", max_attempts=2)
    queue.publish("y.handled")
    queue.call("register_worker", "w", "host", 42, "1.0", ["y.handled", "unused"], 10)
    queue.publish("z.running")
    queue.claim("z.running")

    assert limited(queue, 3) == ["x.declared", "y.handled", "z.running"]
    assert limited(queue, 5) == ["a", "many", "x.declared", "y.handled", "z.running"]
    assert len(limited(queue, 8)) == len(limited(queue, 9)) == 8


def test_topics_are_chosen_by_names_and_by_their_beginnings(queue: Queue) -> None:
    for topic in ("mail", "mail.in", "mail.out", "mailing", "order_1", "orderx1", "other"):
        queue.publish(topic)
    queue.policy("mail.quiet", max_attempts=2)

    assert limited(queue, 100, "mail") == ["mail"]
    assert limited(queue, 100, "mail*") == ["mail", "mail.in", "mail.out", "mail.quiet", "mailing"]
    assert limited(queue, 100, "mail.*", "other", "none*", "none") == ["mail.in", "mail.out", "mail.quiet", "other"]
    assert limited(queue, 100, "order_*") == ["order_1"]
    assert limited(queue, 100, "%", "m%il*") == []
    assert limited(queue, 2, "mail.*") == ["mail.in", "mail.quiet"]
