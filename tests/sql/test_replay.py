"""messages.replay: publishes successes of a time range again."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors

from tests.sql.deaths import die
from tests.sql.queue import Queue, Row


def succeed(queue: Queue, topic: str = "t", ago: str = "0", **columns: Any) -> int:
    published = queue.publish(topic, **columns)
    queue.settle("complete", queue.claim(topic))
    queue.conn.execute(
        "UPDATE messages.message_archive SET archived_at = archived_at - %s::interval WHERE id = %s", [ago, published]
    )
    return published


def replay(queue: Queue, topic: str = "t", since: str = "1 hour", **options: Any) -> list[Row]:
    named = "".join(f", p_{name} => %({name})s" for name in options)
    return queue.rows(
        f"SELECT * FROM messages.replay(%(topic)s, now() - %(since)s::interval, now(){named})",
        {"topic": topic, "since": since, **options},
    )


def test_successes_of_the_range_become_new_messages_that_name_their_ancestors(queue: Queue) -> None:
    done = [succeed(queue, payload={"n": n}, headers={"h": n}, channel="c", priority=n) for n in range(3)]

    replayed = replay(queue)

    assert [(row.archived_id, row.outcome) for row in replayed] == [(each, "replayed") for each in done]
    new = queue.rows("SELECT * FROM messages.message ORDER BY id")
    assert [(m.id, m.redriven_from, m.payload, m.headers, m.channel, m.priority) for m in new] == [
        (row.message_id, each, {"n": n}, {"h": n}, "c", n)
        for n, (row, each) in enumerate(zip(replayed, done, strict=True))
    ]
    assert {(m.attempts, m.redrives) for m in new} == {(0, 0)}


def test_only_successes_of_this_topic_and_range_are_replayed(queue: Queue) -> None:
    wanted = succeed(queue, ago="30 minutes")
    succeed(queue, ago="2 hours")
    succeed(queue, "other")
    die(queue)

    assert [row.archived_id for row in replay(queue)] == [wanted]


def test_they_may_be_replayed_any_number_of_times_and_count_as_no_redrive(queue: Queue) -> None:
    succeed(queue)

    assert len(replay(queue)) == len(replay(queue)) == 1
    assert queue.value("SELECT count(*) FROM messages.redrive_log") == 0


def test_all_messages_of_one_key_are_replayed_without_it(queue: Queue) -> None:
    for _ in range(3):
        succeed(queue, key="k")

    assert len(replay(queue)) == 3
    assert {row.key for row in queue.rows("SELECT key FROM messages.message")} == {None}


def test_messages_whose_payload_was_not_archived_are_reported(queue: Queue) -> None:
    whole = succeed(queue)
    queue.policy(archive_success="no_payload")
    bare = succeed(queue)

    assert {row.archived_id: (row.outcome, row.message_id is None) for row in replay(queue)} == {
        whole: ("replayed", False),
        bare: ("no_payload", True),
    }


def test_a_message_that_was_only_fanned_out_is_left_to_the_topics_of_its_subscribers(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('news', 'mails')")
    queue.publish("news")
    queue.settle("complete", queue.claim("mails"))

    assert replay(queue, "news") == []
    assert [row.outcome for row in replay(queue, "mails")] == ["replayed"]


def test_pages_follow_each_other_by_the_last_id(queue: Queue) -> None:
    done = [succeed(queue) for _ in range(5)]

    first = [row.archived_id for row in replay(queue, limit=2)]
    others = [row.archived_id for row in replay(queue, after=first[-1])]

    assert first + others == done


def test_a_rate_spreads_them_over_time(queue: Queue) -> None:
    for _ in range(3):
        succeed(queue)
    queue.later("0")

    replay(queue, rate=4, delay="1 s")

    due = "SELECT extract(epoch FROM available_at - messages.now())::float AS s FROM messages.message ORDER BY id"
    assert [row.s for row in queue.rows(due)] == [1, 1.25, 1.5]


def test_it_notifies_like_a_publish_and_its_messages_die_like_any_other(queue: Queue) -> None:
    done = succeed(queue)
    (row,) = replay(queue)
    queue.settle("fail", queue.claim(), ["boom"])

    assert queue.archived(row.message_id).redriven_from == done
    assert [r.outcome for r in queue.rows("SELECT outcome FROM messages.redrive(%s)", [[row.message_id]])] == [
        "redriven"
    ]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"rate": 0}, "rate of a replay is 0"),
        ({"delay": "-1 s"}, "delay of a replay is -"),
        ({"limit": 0}, "limit of a replay is 0"),
        ({"limit": 10_001}, "limit of a replay is 10001"),
        ({"topic": "t.dlq"}, 'topic of a replay is "t.dlq"'),
    ],
)
def test_a_setting_that_is_out_of_range_is_refused(queue: Queue, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=complaint) as caught:
        replay(queue, **options)

    assert caught.value.diag.message_hint.startswith("use ")


@pytest.mark.parametrize("options", [{"topic": None}, {"since": None}, {"limit": None}])
def test_topic_range_and_limit_are_required(queue: Queue, options: dict[str, Any]) -> None:
    with pytest.raises(errors.NullValueNotAllowed, match="replay needs a topic, a time from and to, and a limit"):
        replay(queue, **options)
