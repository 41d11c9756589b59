"""messages.examine_topics: paused topics, and locks shorter than the runs of their topic."""

from __future__ import annotations

from tests.sql.examined import examine
from tests.sql.queue import Queue

# Fifty runs in the bucket with the upper bound 0.0001 s * 2^(38/2): about 45 s.
RUNS = """
    INSERT INTO messages.measure (minute, topic, runs)
    SELECT date_trunc('minute', messages.now()), 'slow', messages.pack_histogram('{"38": 50}')
"""


def test_without_pauses_and_with_long_locks_there_is_no_finding(queue: Queue) -> None:
    found = examine(queue, "topics")

    assert found.wrong == {}
    assert {row.what for row in found.rows} == {
        "nothing is",
        "each lock outlasts the runs of its topic",
        "each tick looks at all topics",
    }


def test_a_pause_is_reported_and_is_no_problem(queue: Queue) -> None:
    queue.call("pause", "mail", reason="smtp is down")
    queue.call("pause", "mail", channel="berlin")
    queue.schedule("nightly")
    queue.call("pause_schedule", "nightly")

    found = examine(queue, "topics")

    assert found.wrong == {}
    assert "mail has been paused since" in found.text_of("paused")
    assert "smtp is down" in found.text_of("paused")
    assert "the channel berlin of mail has been paused" in found.text_of("paused")
    assert "the schedule nightly has been paused" in found.text_of("paused")


def test_each_pause_is_reported_with_the_call_that_ends_it(queue: Queue) -> None:
    queue.call("pause", "mail")
    queue.call("pause", "mail", channel="berlin")
    queue.schedule("nightly")
    queue.call("pause_schedule", "nightly")

    for row in examine(queue, "topics").rows:
        if row.fix:
            queue.conn.execute(row.fix.encode())

    assert examine(queue, "topics").of("paused").what == "nothing is"


def test_a_lock_that_is_shorter_than_the_slowest_runs_of_its_topic_is_found(queue: Queue) -> None:
    queue.policy("slow", lock_duration="10 s")
    queue.conn.execute(RUNS)

    found = examine(queue, "topics")

    assert found.wrong == {"short_locks": "warn"}
    assert "and its lock lasts 10 s" in found.of("short_locks").what
    assert found.of("short_locks").fix.startswith("pgrouse topic set slow lock_duration=")


def test_a_lock_that_is_longer_has_no_finding(queue: Queue) -> None:
    queue.policy("slow", lock_duration="10 minutes")
    queue.conn.execute(RUNS)

    assert examine(queue, "topics").wrong == {}


def test_more_topics_than_one_tick_visits_are_found(queue: Queue) -> None:
    publish = "INSERT INTO messages.message (topic, payload) SELECT 't' || n, '1' FROM generate_series(1, %s) AS n"
    queue.conn.execute(publish, [2000])
    assert examine(queue, "topics").wrong == {}

    queue.publish("one.more")

    found = examine(queue, "topics")
    assert found.wrong == {"many_topics": "warn"}
    assert "pgrouse topic purge" in found.of("many_topics").fix
