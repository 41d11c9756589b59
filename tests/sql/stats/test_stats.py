"""Counts of topics: waiting, ready, handled."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.sql.queue import Queue

# messages.stats: the numbers of messages by topic, at a cost that does not grow with them.


def stats(queue: Queue, bound: int = 10000) -> dict[str, Any]:
    return {row.topic: row for row in queue.rows("SELECT * FROM messages.stats(%s)", [bound])}


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


def test_it_lists_topics_that_only_run_died_or_have_a_policy(queue: Queue) -> None:
    queue.publish("running")
    queue.claim("running")
    queue.publish("dead")
    queue.settle("fail", queue.claim("dead"), ["boom"])
    queue.policy("planned", max_attempts=2)

    found = stats(queue)

    assert list(found) == ["dead", "planned", "running"]
    assert (found["running"].running, found["planned"].ready) == (1, 0)


def test_a_topic_that_a_worker_handles_has_its_row_also_while_nothing_waits(queue: Queue) -> None:
    queue.call("register_worker", "w", "h", 1, "1", ["quick", "orders.*"], 1)

    assert [(row.topic, row.ready) for row in queue.rows("SELECT * FROM messages.stats()")] == [("quick", 0)]
    assert [row[0] for row in queue.rows("SELECT messages.list_topics()")] == ["quick"]
    assert queue.rows("SELECT * FROM messages.stats(p_topics => '{orders.*}')") == []

    queue.call("unregister_worker", "w")

    assert queue.rows("SELECT * FROM messages.stats()") == []


def test_it_shows_whether_a_live_worker_handles_the_topic(queue: Queue) -> None:
    queue.publish("a")
    queue.publish("b")
    queue.call("register_worker", "w", "host", 42, "1.0", ["a"], 10)

    assert [row.handled for row in stats(queue).values()] == [True, False]


def test_a_retried_message_is_delayed_and_without_ready_messages_there_is_no_age(queue: Queue) -> None:
    queue.publish(max_attempts=2)
    queue.settle("retry", queue.claim(), ["boom"], [timedelta(hours=1)])

    assert (stats(queue)["t"].ready, stats(queue)["t"].delayed, stats(queue)["t"].oldest_ready_s) == (0, 1, None)


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
    assert len(limited(queue, 9)) == len(limited(queue, 10)) == 9


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


# messages.list_topics: all topics, page by page.


def listed(queue: Queue, after: str = "", limit: int = 100, topics: tuple[str, ...] = ("*",)) -> list[str]:
    rows = queue.rows("SELECT messages.list_topics(%s, %s, %s) AS topic", [after, limit, list(topics)])
    return [row.topic for row in rows]


def test_it_lists_topics_with_waiting_running_or_dead_messages_or_a_policy(queue: Queue) -> None:
    queue.publish("waiting", channel="c")
    queue.publish("delayed", wait="1 hour")
    queue.publish("running")
    queue.claim("running")
    queue.publish("dead")
    queue.settle("fail", queue.claim("dead"), ["boom"])
    queue.policy("declared", max_attempts=2)

    assert listed(queue) == ["dead", "declared", "delayed", "running", "waiting"]


def test_the_pages_have_each_topic_once(queue: Queue) -> None:
    topics = sorted(f"{letter}{n}" for letter in "aB" for n in range(10))
    for topic in topics:
        queue.publish(topic)
    queue.policy("a55", max_attempts=2)

    pages, after = [], ""
    while page := listed(queue, after, 6):
        pages += page
        after = page[-1]

    assert pages == sorted([*topics, "a55"])


def test_list_topics_topics_are_chosen_by_names_and_by_their_beginnings(queue: Queue) -> None:
    for topic in ("a", "a.b", "ab", "b", "b_c", "bxc"):
        queue.publish(topic)

    assert listed(queue, topics=("a*", "b")) == ["a", "a.b", "ab", "b"]
    assert listed(queue, "a.b", topics=("a*", "b_c")) == ["ab", "b_c"]
    assert listed(queue, limit=2, topics=("b*",)) == ["b", "b_c"]
    assert listed(queue, topics=()) == []


# messages.estimate_waiting: the numbers of waiting messages, from a sample of the pages.


def test_a_small_table_is_read_as_a_whole(queue: Queue) -> None:
    queue.publish_many(30)
    queue.publish_many(20, wait="1 hour", channel="c")
    queue.publish_many(7, "u")
    queue.claim("u", limit=3)

    found = {row.topic: row for row in queue.rows("SELECT * FROM messages.estimate_waiting(1000000)")}

    assert (found["t"].ready, found["t"].delayed) == (30, 20)
    assert found["t"].ready_runs == 1000
    assert (found["u"].ready, found["u"].delayed) == (4, 0)


@pytest.mark.parametrize("together", [True, False])
def test_an_estimate_from_a_part_of_the_pages_is_near_the_rows(own_queue: Queue, together: bool) -> None:
    for n in range(4 if together else 40):
        own_queue.publish_many(5_000 if together else 500, f"topic-{n % 4}")
    pages = int(own_queue.value("SELECT pg_relation_size('messages.message') / current_setting('block_size')::int"))

    found = {row.topic: row for row in own_queue.rows("SELECT * FROM messages.estimate_waiting(%s)", [pages // 4])}

    # Messages that were published at once lie on few of the runs: errors of a fifth were seen.
    assert {topic: row.ready for topic, row in found.items()} == {
        f"topic-{n}": pytest.approx(5_000, rel=0.4) for n in range(4)
    }
    again = own_queue.rows("SELECT * FROM messages.estimate_waiting(%s)", [pages // 4])
    assert {row.topic: row for row in again} == found, "the same messages, another estimate"


def test_a_topic_on_few_runs_is_not_sure(own_queue: Queue) -> None:
    for _ in range(2):
        own_queue.publish_many(5_000)
    own_queue.publish_many(300, "together")
    for _ in range(2):
        own_queue.publish_many(5_000)
    pages = int(own_queue.value("SELECT pg_relation_size('messages.message') / current_setting('block_size')::int"))

    found = own_queue.rows("SELECT * FROM messages.estimate_waiting(%s)", [pages - 5])

    runs = {row.topic: row.ready_runs for row in found}
    assert runs["t"] >= 20
    assert runs["together"] <= 3


@pytest.mark.newest
def test_it_reads_no_more_pages_than_it_may(own_queue: Queue) -> None:
    own_queue.publish_many(20_000)
    own_queue.rows("SELECT * FROM messages.estimate_waiting(20)")  # which reads the catalog, to plan

    assert own_queue.buffers("SELECT * FROM messages.estimate_waiting(20)") < 100


# messages.is_handled: the one rule of whether a worker handles a topic.


def handled(queue: Queue, topic: str = "t") -> bool:
    return bool(queue.call("is_handled", topic))


def register(queue: Queue, name: str = "w") -> None:
    queue.call("register_worker", name, "host", 42, "1.0", ["t"], 10)


def test_a_topic_that_no_worker_names_is_not_handled(queue: Queue) -> None:
    queue.publish()
    register(queue)

    assert (handled(queue, "t"), handled(queue, "other")) == (True, False)


def test_a_worker_that_stops_or_is_silent_handles_nothing(queue: Queue) -> None:
    register(queue)
    queue.call("touch_worker", "w", {}, True)
    assert not handled(queue)

    queue.call("touch_worker", "w", {}, False)
    assert handled(queue)
    queue.conn.execute("UPDATE messages.worker SET seen_at = clock_timestamp() - interval '31 s'")
    assert not handled(queue)


@pytest.mark.parametrize("topics", [["t", "x"], None])
def test_an_armed_worker_outside_the_registry_handles_its_topic(queue: Queue, topics: list[str] | None) -> None:
    queue.call("arm", "shop", topics, "30 s")

    assert handled(queue)
    assert handled(queue, "other") is (topics is None)
    queue.conn.execute("UPDATE messages.sleeper SET armed_until = clock_timestamp() - interval '1 s'")
    assert not handled(queue)


def test_a_topic_with_notify_always_is_not_handled_because_of_that(queue: Queue) -> None:
    queue.policy("t", notify="always")

    assert not handled(queue)


def test_a_worker_outside_the_registry_handles_the_topic_of_its_message_until_the_lock_expires(queue: Queue) -> None:
    queue.publish()
    queue.publish("other")
    (held,) = queue.claim(worker="http:shop", lock_duration="1 minute")

    assert (handled(queue), handled(queue, "other")) == (True, False)
    queue.later("61 s")
    assert not handled(queue)
    queue.later("0 s")
    queue.settle("complete", [held])
    assert not handled(queue)


@pytest.mark.parametrize("holder", ["w", "w/2"])
def test_a_message_that_a_stopping_worker_still_holds_handles_nothing(queue: Queue, holder: str) -> None:
    register(queue)
    queue.publish()
    queue.claim(worker=holder)
    queue.call("arm", "w", ["t"], "30 s")
    queue.call("touch_worker", "w", {}, True)

    assert not handled(queue)


def test_a_worker_over_http_handles_a_topic_as_long_as_it_holds_a_message(queue: Queue) -> None:
    queue.call("touch_http_worker", "http:shop/w", "h", ["t"], 1)
    queue.publish()
    queue.claim(worker="http:shop/w")

    queue.conn.execute("UPDATE messages.worker SET seen_at = clock_timestamp() - interval '31 s'")

    assert handled(queue)


def test_stats_unhandled_topics_and_explain_use_it(queue: Queue) -> None:
    waiting = queue.publish()
    queue.call("arm", "shop", ["t"], "30 s")

    assert [row.handled for row in queue.rows("SELECT * FROM messages.stats()")] == [True]
    assert queue.rows("SELECT * FROM messages.unhandled_topics()") == []
    assert [row.code for row in queue.rows("SELECT * FROM messages.explain(%s)", [waiting])] == ["ready"]


@pytest.mark.newest
def test_it_reads_a_few_pages_however_many_messages_are_locked(own_queue: Queue) -> None:
    own_queue.publish_many(20_000)
    for _ in range(2):
        own_queue.claim(limit=10_000, lock_duration="0 s")

    assert own_queue.buffers("SELECT messages.is_handled('t')") < 250


# messages.unhandled_topics: topics whose messages wait without a worker.


def unhandled(queue: Queue) -> list[str]:
    return [row.unhandled_topics for row in queue.rows("SELECT * FROM messages.unhandled_topics()")]


def test_a_topic_that_waits_without_a_worker_is_listed_once(queue: Queue) -> None:
    queue.publish_many(3, "b")
    queue.publish("a", channel="c")
    queue.publish("d", wait="1 hour")
    # A mark is no message.
    queue.conn.execute("INSERT INTO messages.low_water VALUES ('empty', 5, now())")

    assert unhandled(queue) == ["a", "b", "d"]


def test_a_message_of_an_unhandled_topic_stays_ready(queue: Queue) -> None:
    published = queue.publish("unhandled.topic", wait="-1 day")
    queue.claim("t")
    queue.rows("SELECT * FROM messages.tick()")

    assert [c.id for c in queue.claim("unhandled.topic")] == [published]


def test_the_list_has_a_limit(queue: Queue) -> None:
    for topic in ("a", "b", "c"):
        queue.publish(topic)
    queue.call("register_worker", "w", "host", 42, "1.0", ["a"], 10)

    assert [row.unhandled_topics for row in queue.rows("SELECT * FROM messages.unhandled_topics(1)")] == ["b"]


# messages.oldest_ready: since when the oldest ready message of a topic waits.


@pytest.fixture
def _stopped(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")


def age(queue: Queue) -> timedelta | None:
    found: timedelta | None = queue.value("SELECT messages.now() - messages.oldest_ready('t')")
    return found


@pytest.mark.usefixtures("_stopped")
@pytest.mark.parametrize("channel", [None, "c"])
def test_it_is_the_oldest_of_all_priorities(queue: Queue, channel: str | None) -> None:
    for priority, wait in ((9, "-3 minutes"), (0, "-1 minute"), (5, "-2 minutes")):
        queue.publish(priority=priority, wait=wait, channel=channel)
    queue.publish("other", wait="-1 hour")

    assert age(queue) == timedelta(minutes=3)


@pytest.mark.usefixtures("_stopped")
def test_it_reads_a_few_pages_however_many_messages_there_are(queue: Queue) -> None:
    queue.publish_many(5_000, wait="-1 minute")
    queue.publish_many(5_000, wait="1 hour", priority=3)
    queue.publish_many(5_000, wait="-1 minute", channel="c")
    queue.conn.execute("ANALYZE messages.message")

    assert queue.buffers("SELECT messages.oldest_ready('t')") < 150
