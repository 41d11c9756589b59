"""Incidents: one row for one cause, from its begin to its end, as all front ends read it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sql.alert.test_conditions import alerts, open_breaker, open_conditions_found
from tests.sql.queue import Queue, Row
from tests.sql.sinks import Sink


@pytest.fixture(autouse=True)
def _a_worker(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 7, "1.0", ["mail", "elsewhere"], 1)
    queue.conn.execute("UPDATE messages.alert_threshold SET dead_per_hour = 3 WHERE topic = '*'")


def die(queue: Queue, count: int, topic: str = "mail", error: str = "boom") -> list[int]:
    ids = queue.publish_many(count, topic)
    queue.settle("fail", queue.claim(topic, limit=count), [error] * count)
    return ids


def redrive(queue: Queue, ids: list[int]) -> None:
    queue.rows("SELECT FROM messages.redrive(%s)", [ids])


def stop(queue: Queue) -> None:
    """Let the breaker of mail open."""
    queue.conn.execute("DELETE FROM messages.breaker")
    open_breaker(queue, "mail")


def incidents(queue: Queue, *, over: bool = True) -> list[Row]:
    return queue.rows("SELECT * FROM messages.incidents(p_over => %s)", [over])


def states(queue: Queue) -> list[tuple[str, str, str | None]]:
    return [(row.kind, row.state, row.topic) for row in incidents(queue)]


def test_an_incident_has_its_begin_count_and_end_and_stays_when_it_is_over(queue: Queue) -> None:
    queue.publish("orphan", wait="-10 minutes")
    queue.call("update_conditions")
    (open_one,) = incidents(queue)
    queue.later("5 minutes")
    queue.call("purge_topic", "orphan")
    queue.call("update_conditions")

    (ended,) = incidents(queue)

    assert (open_one.kind, open_one.state, open_one.severity, open_one.ended_at) == (
        "no_worker",
        "firing",
        "page",
        None,
    )
    assert (ended.state, ended.began_at, ended.count, ended.what) == (
        "over",
        open_one.began_at,
        1,
        "messages of orphan are ready, and no worker handles the topic",
    )
    assert queue.value("SELECT messages.now()") - ended.ended_at < timedelta(minutes=5)
    assert incidents(queue, over=False) == []
    assert open_conditions_found(queue) == []


def test_a_condition_that_returns_is_another_incident(queue: Queue) -> None:
    for _ in range(2):
        queue.publish("orphan", wait="-10 minutes")
        queue.call("update_conditions")
        queue.call("purge_topic", "orphan")
        queue.call("update_conditions")
        queue.later("1 minute")

    assert states(queue) == [("no_worker", "over", "orphan")] * 2
    assert alerts(queue) == [("no_worker", "orphan", "begun"), ("no_worker", "orphan", "ended")] * 2


def test_a_redrive_ends_the_many_dead_at_once_and_not_at_the_next_tick(queue: Queue) -> None:
    ids = die(queue, 4)
    queue.call("update_conditions")
    assert open_conditions_found(queue) == [("dead_rate", "page", "mail")]

    redrive(queue, ids)

    assert open_conditions_found(queue) == []
    queue.call("update_conditions")
    assert states(queue) == [("dead_rate", "over", "mail")]


def test_a_redrive_of_a_group_ends_its_incident_at_once(queue: Queue) -> None:
    sink = Sink(queue)
    other, ids = die(queue, 1, error="another"), die(queue, 2)
    sink.deliver_all()
    assert sorted(row.count for row in incidents(queue)) == [1, 2]

    redrive(queue, ids[1:])
    assert {row.state for row in incidents(queue)} == {"firing"}
    redrive(queue, ids[:1])

    assert [(row.what, row.state, row.count) for row in incidents(queue)] == [
        ("another", "firing", 1),
        ("boom", "over", 2),
    ]
    (_, over) = incidents(queue)
    assert over.ended_at == queue.value("SELECT max(redriven_at) FROM messages.redrive_log")
    die(queue, 1)
    sink.deliver_all()
    assert {row.state for row in incidents(queue)} == {"firing"}, "it died again"
    assert other


def test_a_group_of_more_than_ten_thousand_messages_is_not_looked_through(queue: Queue) -> None:
    queue.conn.execute("UPDATE messages.alert_threshold SET dead_per_hour = 0 WHERE topic = '*'")
    sink = Sink(queue)
    ids = die(queue, 2)
    sink.deliver_all()
    redrive(queue, ids)
    assert {row.state for row in incidents(queue)} == {"over"}

    for table, column in (("message_archive", "id"), ("redrive_log", "archived_id")):
        queue.conn.execute(
            f"INSERT INTO messages.{table}"
            f" SELECT (jsonb_populate_record(r, jsonb_build_object(%s::text, n, 'message_id', -n))).*"
            f" FROM messages.{table} AS r CROSS JOIN generate_series(-10000, -1) AS n WHERE r.{column} = %s",
            [column, ids[0]],
        )

    assert {row.state for row in incidents(queue)} == {"firing"}


def test_incidents_of_other_topics_take_no_place_of_those_that_are_asked_for(queue: Queue) -> None:
    sink = Sink(queue)
    for topic in ("mail", "elsewhere"):
        die(queue, 1, topic)
        sink.deliver_all()

    (row,) = queue.rows("SELECT * FROM messages.incidents('{mail}', p_limit => 1)")

    assert row.topic == "mail"


def test_the_dead_of_an_open_breaker_are_part_of_it(queue: Queue) -> None:
    queue.policy("mail", breaker={"pause": "10m"})
    sink = Sink(queue)
    die(queue, 4)
    sink.deliver_all()
    queue.call("update_conditions")
    stop(queue)
    queue.call("update_conditions")

    assert open_conditions_found(queue) == [("breaker", "page", "mail")]
    assert states(queue) == [("breaker", "firing", "mail")]
    assert [row.code for row in queue.rows("SELECT * FROM messages.examine_conditions() WHERE level <> 'ok'")] == [
        "breakers"
    ]


def test_what_a_wider_problem_explains_has_not_ended(queue: Queue) -> None:
    queue.policy("mail", breaker={"pause": "10m"})
    ids = die(queue, 4)
    queue.call("update_conditions")
    stop(queue)
    queue.call("update_conditions")
    assert alerts(queue)[1:] == [("dead_rate", "mail", "begun")], "no sink is told that it is resolved"

    queue.conn.execute("UPDATE messages.breaker SET position = 'closed', probe_at = NULL")
    queue.call("update_conditions")
    assert open_conditions_found(queue) == [("dead_rate", "page", "mail")]
    redrive(queue, ids)
    queue.call("update_conditions")

    assert alerts(queue)[2:] == [("dead_rate", "mail", "ended")]


def test_the_groups_of_a_topic_are_part_of_its_many_dead(queue: Queue) -> None:
    sink = Sink(queue)
    die(queue, 4)
    die(queue, 1, "elsewhere")
    sink.deliver_all()
    queue.call("update_conditions")

    assert states(queue) == [("dead_rate", "firing", "mail"), ("dead_message", "firing", "elsewhere")]


def test_a_silenced_incident_says_so_and_is_no_problem(queue: Queue) -> None:
    die(queue, 4)
    queue.call("update_conditions")

    queue.call("silence", "dead_rate", "mail", None, "1 hour")

    assert states(queue) == [("dead_rate", "silenced", "mail")]
    assert open_conditions_found(queue) == []


def test_they_have_the_order_of_the_problems_with_the_oldest_first(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.condition (kind, topic, what, fix, since) VALUES"
        " ('backlog', 'young', '', '', now()), ('no_worker', 'old', '', '', now() - interval '1 hour'),"
        " ('cron_late', '', '', '', now() - interval '1 day')"
    )

    found = [(row.kind, row.topic) for row in incidents(queue)]

    assert found == [("no_worker", "old"), ("backlog", "young"), ("cron_late", None)]
    assert found == [(row.kind, row.topic) for row in queue.rows("SELECT * FROM messages.open_conditions()")]


def test_it_names_the_sinks_that_were_told_and_when(queue: Queue) -> None:
    for name in ("ops", "pager"):
        Sink(queue, name).next()
    queue.publish("orphan", wait="-10 minutes")
    queue.call("update_conditions")
    assert [row.sinks for row in incidents(queue)] == [[]]

    for name in ("ops", "pager"):
        Sink(queue, name).deliver_all()

    (row,) = incidents(queue)
    assert (row.sinks, row.unsent) == (["ops", "pager"], 0)
    assert row.notified_at is not None


def announce(queue: Queue, position: str) -> None:
    """Let the breaker of mail open or close, as a settle that does it announces it."""
    if position == "open":
        stop(queue)
    else:
        queue.conn.execute("UPDATE messages.breaker SET position = 'closed', probe_at = NULL")
    queue.conn.execute("SELECT messages.announce_breaker(b, '') FROM messages.breaker AS b WHERE b.topic = 'mail'")


def told(sink: Sink) -> list[tuple[str, str, str | None, int]]:
    groups = [group for body in sink.deliver_all() for group in body["groups"]]
    return [(each["kind"], each["status"], each["topic"], each["count"]) for each in groups]


BREAKER = ("breaker", "firing", "mail", 1)


def test_a_sink_is_told_of_the_open_breaker_and_of_its_dead_only_if_they_outlive_it(queue: Queue) -> None:
    queue.policy("mail", breaker={"pause": "10m"})
    sink = Sink(queue)
    die(queue, 2)
    die(queue, 1, "elsewhere")
    announce(queue, "open")

    assert sorted(told(sink)) == [BREAKER, ("dead_message", "firing", "elsewhere", 1)]
    queue.later("20 minutes")
    die(queue, 1)
    assert told(sink) == []

    announce(queue, "closed")
    queue.later("6 s")
    assert told(sink) == [("dead_message", "firing", "mail", 3), ("breaker", "resolved", "mail", 0)]


def test_the_dead_of_an_open_breaker_that_were_redriven_are_never_told(queue: Queue) -> None:
    queue.policy("mail", breaker={"pause": "10m"})
    sink = Sink(queue)
    ids = die(queue, 2)
    announce(queue, "open")
    told(sink)
    redrive(queue, ids)
    queue.later("6 s")
    told(sink)
    assert queue.value("SELECT state FROM messages.alert_incident WHERE kind = 'dead_message'") == "over"

    announce(queue, "closed")
    queue.later("6 s")

    assert told(sink) == [("breaker", "resolved", "mail", 0)]


def test_a_redrive_that_ends_many_dead_lets_no_sink_be_told_of_what_it_redrove(queue: Queue) -> None:
    sink = Sink(queue)
    ids = die(queue, 4)
    queue.call("update_conditions")
    assert told(sink) == [("dead_rate", "firing", "mail", 1)]

    redrive(queue, ids)
    queue.later("6 s")
    assert told(sink) == []
    queue.call("update_conditions")

    assert told(sink) == [("dead_rate", "resolved", "mail", 0)]


@pytest.mark.parametrize(
    "rules",
    [{"kinds": ["dead_message"]}, {"escalate_count": 2}, {"group_by": ["result"]}],
    ids=["that does not want the cause", "that waits with the cause", "whose group has other topics too"],
)
def test_a_sink_that_is_not_told_of_the_cause_is_told_of_the_dead(queue: Queue, rules: dict[str, object]) -> None:
    queue.policy("mail", breaker={"pause": "10m"})
    sink = Sink(queue, **rules)
    die(queue, 2)
    die(queue, 2, "elsewhere")
    announce(queue, "open")

    found = told(sink)

    assert sum(count for kind, _, _, count in found if kind == "dead_message") == 4
    assert (BREAKER in found) == ("group_by" in rules)


def test_of_many_dead_in_a_topic_a_sink_is_told_once_and_of_the_rest_when_that_is_over(queue: Queue) -> None:
    sink = Sink(queue)
    die(queue, 4)
    queue.call("update_conditions")
    assert told(sink) == [("dead_rate", "firing", "mail", 1)]
    queue.later("20 minutes")
    assert told(sink) == []

    queue.conn.execute("UPDATE messages.alert_threshold SET dead_per_hour = 100 WHERE topic = '*'")
    queue.call("update_conditions")
    queue.later("6 s")

    assert told(sink) == [("dead_message", "firing", "mail", 4), ("dead_rate", "resolved", "mail", 0)]


def test_the_message_about_many_dead_names_their_errors_and_a_repetition_the_new_ones(queue: Queue) -> None:
    sink = Sink(queue, repeat_interval=60)
    die(queue, 4)
    queue.call("update_conditions")
    (first,) = [group for body in sink.deliver_all() for group in body["groups"]]
    queue.later("1 minute")
    die(queue, 1, error="KeyError: x")

    (again,) = [group for body in sink.deliver_all() for group in body["groups"]]

    assert (first["kind"], first["nth"], again["kind"], again["nth"]) == ("dead_rate", 1, "dead_rate", 2)
    (known,) = first["errors"]
    assert (known["count"], known["is_new"]) == (4, False)
    assert again["errors"] == [{"error": "KeyError: x", "count": 1, "is_new": True}, known]


def test_what_waits_is_not_repeated_while_no_worker_is_alive(queue: Queue) -> None:
    queue.conn.execute("UPDATE messages.alert_threshold SET undelivered_for = '0' WHERE topic = '*'")
    sink = Sink(queue)
    queue.publish("orphan", wait="-10 minutes")
    queue.call("update_conditions")
    assert told(sink) == [("no_worker", "firing", "orphan", 1)]

    queue.later("61 minutes")
    queue.conn.execute("UPDATE messages.worker SET seen_at = now() - interval '1 minute'")
    queue.call("update_conditions")
    assert told(sink) == [("workers_down", "firing", None, 1)]
    queue.call("register_worker", "w", "host", 8, "1.0", ["mail", "elsewhere"], 1)
    queue.call("update_conditions")
    queue.later("6 s")

    assert told(sink) == [("no_worker", "firing", "orphan", 0), ("workers_down", "resolved", None, 0)]
