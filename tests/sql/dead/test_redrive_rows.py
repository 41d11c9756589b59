"""What a redrive takes along and remembers; replay of successes."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.deaths import copy_of, die, outcomes
from tests.sql.queue import Background, Queue, Row

# messages.redrive_rows: what all ways to redrive share.


def test_two_calls_with_the_same_keys_in_opposite_order_do_not_deadlock(
    queue: Queue, other: Queue, third: Queue, background: Background
) -> None:
    """Both stop in the middle, at a key that another session holds."""
    abc = [die(queue, key=key) for key in ("a", "middle", "z")]
    cba = [die(queue, key=key) for key in ("z", "middle", "a")]

    with third.conn.transaction(force_rollback=True):
        third.publish(key="middle")
        first = background.start_blocked(queue, outcomes, queue, "redrive", abc)
        second = background.start_blocked(other, outcomes, other, "redrive", cba)

    assert set(first.result(timeout=60).values()) == {"redriven"}
    assert set(second.result(timeout=60).values()) == {"superseded"}


def test_a_copy_replaces_an_original_that_has_left_the_archive(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = die(queue, payload={"n": 1}, channel="c", key="k")
    copy = copy_of(queue, died)
    queue.conn.execute("DELETE FROM messages.message_archive")

    redriven = outcomes(queue, "redrive", [died])

    assert redriven == {died: "redriven"}
    (new,) = queue.rows("SELECT * FROM messages.message")
    assert (new.topic, new.payload, new.channel, new.redriven_from, new.dlq_moved_at) == (
        "t",
        {"n": 1},
        "c",
        died,
        None,
    )
    assert queue.archived(copy.id).result == "cancelled"


def test_a_thousand_messages_take_one_call_and_less_than_minutes(queue: Queue) -> None:
    queue.publish_many(1000)
    claimed = queue.claim(limit=1000)
    queue.settle("fail", claimed, ["boom"] * 1000)
    queue.conn.execute("SET statement_timeout = '30s'")

    redriven = outcomes(queue, "redrive", [c.id for c in claimed])

    assert set(redriven.values()) == {"redriven"}
    assert len(queue.ids()) == 1000


# messages.merge_patch: the examples of RFC 7396, appendix A.


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_it_merges_as_the_rfc_says(queue: Queue, target: Any, patch: Any, result: Any) -> None:
    assert queue.call("merge_patch", Jsonb(target), Jsonb(patch)) == result


def test_a_patch_of_null_is_merged_as_into_an_empty_object(queue: Queue) -> None:
    assert queue.call("merge_patch", None, Jsonb({"a": {"b": None}})) == {"a": {}}


# messages.transfer_to_redriven: a redriven message takes over the steps and successors of its ancestor.


def die_with_a_step(queue: Queue) -> int:
    queue.publish()
    (claimed,) = queue.claim()
    queue.value("SELECT messages.save_step(%s, %s, 'charge', '{\"n\": 1}')", [claimed.id, claimed.claim_id])
    queue.settle("fail", [claimed], ["boom"])
    died: int = claimed.id
    return died


@pytest.mark.parametrize(
    ("how", "topic", "comes_along"),
    [
        ("messages.redrive(ARRAY[%s::bigint])", "t", True),
        ("messages.redrive_edited(%s, '2')", "t", True),
        ("messages.redrive_edited(%s, p_topic => 'other')", "other", False),
    ],
    ids=["as it was", "edited", "to another topic"],
)
def test_its_steps_are_transferred_unless_another_handler_runs_it(
    queue: Queue, how: str, topic: str, comes_along: bool
) -> None:
    died = die_with_a_step(queue)

    again = queue.row(f"SELECT * FROM {how}", [died]).message_id
    (claimed,) = queue.claim(topic)
    kept: list[Any] = queue.rows("SELECT * FROM messages.load_steps(%s, %s)", [again, claimed.claim_id])

    assert [tuple(row) for row in kept] == [("charge", '{"n": 1}') if comes_along else (None, None)]


# messages.keep_key_header: the header that names the key of an encrypted message is kept, also when other headers are
# written.

MARK = "pgrouse-encrypted-by"


@pytest.mark.parametrize(
    ("given", "former", "result"),
    [
        ({"a": 1}, {MARK: "k"}, {"a": 1, MARK: "k"}),
        ({MARK: "x"}, {MARK: "k", "b": 2}, {MARK: "k"}),
        ({"a": 1}, {"b": 2}, {"a": 1}),
        ({"a": 1}, None, {"a": 1}),
        (None, {MARK: "k"}, None),
    ],
)
def test_it_is_taken_from_the_old_headers(queue: Queue, given: Any, former: Any, result: Any) -> None:
    values = [None if each is None else Jsonb(each) for each in (given, former)]

    assert queue.value("SELECT messages.keep_key_header(%s::jsonb, %s::jsonb)", values) == result


def test_an_edit_keeps_it_and_takes_no_payload(queue: Queue) -> None:
    published = queue.publish(body=b"\x93PGR", headers={MARK: "k", "a": 1})

    assert queue.value("SELECT messages.edit(%s, NULL, '{\"b\": 2}')", [published]) == "edited"
    with pytest.raises(errors.InvalidParameterValue, match=f"message {published} is encrypted"):
        queue.value("SELECT messages.edit(%s, '1')", [published])

    assert (queue.message(published).body, queue.message(published).headers) == (b"\x93PGR", {MARK: "k", "b": 2})


def test_a_redrive_keeps_it_and_takes_no_payload(queue: Queue) -> None:
    published = queue.publish(body=b"\x93PGR", headers={MARK: "k", "a": 1})
    queue.settle("fail", queue.claim(), ["broken"])

    with pytest.raises(errors.InvalidParameterValue, match=f"message {published} is encrypted"):
        queue.rows("SELECT * FROM messages.redrive_edited(%s, '1')", [published])
    back = queue.row("SELECT * FROM messages.redrive_edited(%s, NULL, '{\"b\": 2}', p_merge => false)", [published])

    assert queue.message(back.message_id).headers == {MARK: "k", "b": 2}


# messages.replay: publishes successes of a time range again.


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
