"""Bulk publishing: all rows of a job at the same moment, with and without keys, and what the job returns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.sql.queue import Background, Listener, Queue
from tests.sql.staging import give_to_another_user, publish, publish_rows, put, rejected, stage, staged

# messages.publish_staged: rows that many connections staged become visible at one moment, and once.


def test_staged_rows_of_several_tasks_become_messages_and_are_deleted_from_the_stage(queue: Queue) -> None:
    one = stage(queue, {"topic": "a", "payload": '{"n": 1}'}, {"topic": "b", "body": b"\x00"})
    other = stage(queue, {"topic": "a", "priority": 1, "channel": "c", "headers": '{"h": 1}', "max_attempts": 3})

    done = publish(queue, one, other)

    assert (done.published, done.ignored, done.dropped, done.rejected, done.is_repeat) == (3, 0, 0, 0, False)
    rows = queue.rows(
        "SELECT topic, payload, body, priority, channel, headers, max_attempts FROM messages.message ORDER BY id"
    )
    assert rows == [
        ("a", {"n": 1}, None, 5, None, None, None),
        ("b", None, b"\x00", 5, None, None, None),
        ("a", 1, None, 1, "c", {"h": 1}, 3),
    ]
    assert staged(queue) == 0
    assert queue.rows("SELECT FROM messages.publish_attempt") == []


def test_a_job_publishes_once(queue: Queue) -> None:
    attempt = stage(queue, {}, {})
    first = publish(queue, attempt)

    again = publish(queue, attempt, counts=[2])

    assert (again.published, again.is_repeat) == (2, True)
    assert again.published_at == first.published_at
    assert len(queue.ids()) == 2


def test_rows_that_are_staged_after_their_job_was_published_are_deleted(queue: Queue) -> None:
    late = stage(queue, {})
    publish_rows(queue, {}, {})

    assert publish(queue, late).is_repeat
    assert (len(queue.ids()), staged(queue)) == (2, 0)


def test_rows_of_a_task_before_its_repetition_are_not_published(queue: Queue) -> None:
    stage(queue, {"topic": "loser"})
    winner = stage(queue, {"topic": "winner"})

    publish(queue, winner)

    assert [queue.message(i).topic for i in queue.ids()] == ["winner"]
    assert staged(queue) == 0


def test_rows_of_other_jobs_are_left_alone(queue: Queue) -> None:
    waiting = stage(queue, {}, job="other")

    publish_rows(queue, {})

    assert staged(queue) == 1
    assert publish(queue, waiting, job="other").published == 1


def test_two_concurrent_calls_publish_once(queue: Queue, other: Queue, background: Background) -> None:
    attempt = stage(queue, {}, {})
    with queue.conn.transaction():
        publish(queue, attempt)
        second = background.start_blocked(other, publish, other, attempt, counts=[2])

    assert second.result(timeout=60).is_repeat
    assert len(queue.ids()) == 2


def test_a_part_of_a_job_is_never_visible(queue: Queue, other: Queue) -> None:
    attempts = [stage(queue, {}, {}) for _ in range(3)]
    with queue.conn.transaction():
        publish(queue, *attempts)

        assert (len(queue.ids()), len(other.ids())) == (6, 0)
    assert len(other.ids()) == 6


def test_it_sends_one_notification_per_topic(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("new_message")
    queue.arm()

    publish(queue, stage(queue, {"topic": "a"}, {"topic": "b"}), stage(queue, {"topic": "a"}, {"topic": "b"}))

    assert sorted(listener.received()) == ["a", "b"]


def test_delays_count_from_the_moment_of_publishing(queue: Queue) -> None:
    publish_rows(queue, {"delay": "1 hour", "ttl": "2 hours"}, {"available_at": "2100-01-01 00:00+00", "ttl": "1 day"})

    delayed, later = queue.rows(
        """
        SELECT available_at - created_at AS wait, expires_at - available_at AS ttl, available_at
        FROM messages.message ORDER BY available_at
        """
    )
    assert 3540 < delayed.wait.total_seconds() < 3660
    assert (delayed.ttl.total_seconds(), later.ttl.total_seconds()) == (7200, 86400)
    assert later.available_at.year == 2100


def test_an_expiry_is_stored_unchanged_and_never_beyond_the_maximum(queue: Queue) -> None:
    publish_rows(
        queue, {"expires_at": "2050-01-01 00:00+00"}, {"available_at": "8999-01-01 00:00+00", "ttl": "36500 days"}
    )

    years = queue.rows(
        "SELECT extract(year FROM expires_at AT TIME ZONE 'UTC')::int AS year FROM messages.message ORDER BY 1"
    )
    assert [row.year for row in years] == [2050, 9000]


def test_rows_that_were_rejected_before_they_were_staged_are_kept_with_their_reasons(queue: Queue) -> None:
    done = publish_rows(queue, {}, {"reason": "no JSON", "given": '{"payload": "nope"}'})

    assert (done.published, done.rejected) == (1, 1)
    assert rejected(queue) == [(1, "no JSON", {"payload": "nope"})]


def test_more_rejected_rows_than_allowed_publish_nothing(queue: Queue) -> None:
    attempt = stage(queue, {}, {"reason": "bad", "given": "{}"}, {"reason": "bad", "given": "{}"})

    with pytest.raises(psycopg.Error, match="has 2 rows that cannot be published, and 1 would be let pass") as caught:
        publish(queue, attempt, max_rejected=1)

    assert caught.value.sqlstate == "PGR07"
    assert caught.value.diag.message_hint == "the first: bad"
    assert (queue.ids(), staged(queue)) == ([], 3)
    assert publish(queue, attempt, max_rejected=2).published == 1


def test_a_full_topic_refuses_the_whole_job_which_can_be_published_later(queue: Queue) -> None:
    queue.policy(max_depth=1)
    attempt = stage(queue, {}, {}, {"topic": "other"})

    with pytest.raises(psycopg.Error, match="topic t is full") as caught:
        publish(queue, attempt)

    assert caught.value.sqlstate == "PGR01"
    assert (queue.ids(), staged(queue)) == ([], 3)
    queue.policy(max_depth=2)
    assert publish(queue, attempt).published == 3


def test_a_topic_with_on_full_drop_drops_what_does_not_fit(queue: Queue) -> None:
    queue.policy(max_depth=1, on_full="drop")

    done = publish_rows(queue, {}, {}, {})

    assert (done.published, done.dropped, len(queue.ids())) == (1, 2, 1)


def test_a_publish_rate_refuses_a_job_that_is_too_large_for_it(queue: Queue) -> None:
    queue.policy(publish_rate=1, burst=2)

    with pytest.raises(psycopg.Error, match="3 at once never fit") as caught:
        publish_rows(queue, {}, {}, {})

    assert caught.value.sqlstate == "PGR02"
    assert publish_rows(queue, {}, {}, job="small").published == 2


def test_the_ttl_of_a_topic_applies(queue: Queue) -> None:
    queue.policy(ttl="1 hour")

    publish_rows(queue, {})

    assert 3600 <= queue.value("SELECT expires_at - available_at FROM messages.message").total_seconds() < 3660


def test_subscribers_get_their_copies(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 'a'), ('t', 'b')")

    publish_rows(queue, {}, {})

    assert sorted(queue.message(i).topic for i in queue.ids()) == ["a", "a", "b", "b"]


INVALID: list[dict[str, Any]] = [
    {"topic": "no topic"},
    {"topic": "x.dlq"},
    {"topic": None},
    {"payload": "1", "body": b"1"},
    {"payload": None},
    {"priority": 10},
    {"headers": "[]"},
    {"key": ""},
    {"channel": "a\nb"},
    {"delay": "-1 s"},
    {"ttl": "36501 days"},
    {"delay": "1 s", "available_at": "2100-01-01 00:00+00"},
    {"ttl": "1 s", "expires_at": "2100-01-01 00:00+00"},
    {"available_at": "9001-01-01 00:00+00"},
    {"max_attempts": -1},
    {"on_conflict": "ignore"},
    {"key": "k", "on_conflict": "whatever"},
    {"key": "k", "on_conflict": "append", "payload": None, "body": b"1"},
]


def test_an_invalid_message_cannot_be_staged(queue: Queue) -> None:
    attempt = stage(queue)

    for row in INVALID:
        with pytest.raises((errors.CheckViolation, errors.NotNullViolation)):
            put(queue, attempt, **row)


def test_lists_of_different_lengths_are_refused(queue: Queue) -> None:
    attempt = stage(queue, {})

    with pytest.raises(errors.InvalidParameterValue, match="1 attempts and 2 counts"):
        publish(queue, attempt, counts=[1, 1])


def test_a_job_of_another_user_is_refused(queue: Queue) -> None:
    attempt = stage(queue, {})
    publish(queue, attempt)
    give_to_another_user(queue)

    with pytest.raises(errors.InsufficientPrivilege, match="another user"):
        publish(queue, attempt)


# messages.store_rejected: rejected rows of a job are stored, its staged rows are deleted.


def test_bytes_are_stored_as_base64(queue: Queue) -> None:
    attempt = stage(queue, {"body": b"\x00\x01"})
    queue.conn.execute("INSERT INTO messages.publish_job (job) VALUES ('j')")
    queue.conn.execute("UPDATE messages.publish_stage SET reason = 'too large'")

    queue.call("store_rejected", "j", [attempt])

    assert rejected(queue)[0].given["body"] == "AAE="


# messages.reject_staged: rows that the policies of their topics refuse do not prevent the others from being published.


def test_rows_of_topics_that_accept_no_publishes_are_rejected(queue: Queue) -> None:
    queue.policy("*", accept_publishes=False)
    queue.policy("known", accept_publishes=True)

    done = publish_rows(queue, {"topic": "known"}, {"topic": "unknown"})

    assert (done.published, done.rejected) == (1, 1)
    assert [row.reason for row in rejected(queue)] == ["topic unknown does not accept publishes"]


def test_rows_that_are_larger_than_their_topic_permits_are_rejected(queue: Queue) -> None:
    queue.policy(max_payload_bytes=10)

    done = publish_rows(
        queue,
        {"payload": '"12345678"'},
        {"payload": '"123456789"'},
        {"body": b"12345678901"},
        {"topic": "other", "payload": '"123456789"'},
    )

    assert (done.published, done.rejected) == (2, 2)
    assert {row.reason for row in rejected(queue)} == {"it has 11 bytes, max_payload_bytes of topic t is 10"}


def test_rejected_rows_are_stored_with_their_columns_here_too(queue: Queue) -> None:
    queue.policy(max_payload_bytes=1)

    publish_rows(queue, {"payload": '{"n": 1}', "channel": "c", "delay": "1 hour"})

    (row,) = rejected(queue)
    assert row.given == {"topic": "t", "payload": '{"n": 1}', "channel": "c", "delay": "01:00:00", "priority": 5}


# messages.publish_staged_with_key: of rows with one key one is published, and on_conflict decides about the others.

BY_ONE = [{}, {"key_ttl": "1 hour"}, {"max_depth": 100, "on_full": "drop"}]


def keyed(payload: int, on_conflict: str | None = None, key: str = "k") -> dict[str, Any]:
    return {"key": key, "payload": str(payload), "on_conflict": on_conflict}


def payloads(queue: Queue) -> list[Any]:
    return [row.payload for row in queue.rows("SELECT payload FROM messages.message ORDER BY key, id")]


@pytest.mark.parametrize("policy", BY_ONE, ids=str)
def test_of_several_rows_with_one_key_the_first_is_published_and_the_others_are_rejected(
    queue: Queue, policy: dict[str, Any]
) -> None:
    if policy:
        queue.policy(**policy)

    done = publish_rows(queue, keyed(1), keyed(2), keyed(3, key="other"))

    assert (done.published, done.ignored, done.rejected) == (2, 0, 1)
    assert payloads(queue) == [1, 3]
    (row,) = rejected(queue)
    assert 'key "k" of topic t' in row.reason
    assert row.given["payload"] == "2"


@pytest.mark.parametrize("policy", BY_ONE, ids=str)
def test_a_key_that_waits_already_is_rejected_or_ignored_by_on_conflict(queue: Queue, policy: dict[str, Any]) -> None:
    if policy:
        queue.policy(**policy)
    queue.publish(key="k", payload={"n": 0})
    queue.publish(key="l", payload={"n": 0})

    done = publish_rows(queue, keyed(1, "error"), keyed(2, "ignore", key="l"))

    assert (done.published, done.ignored, done.dropped, done.rejected) == (0, 1, 0, 1)
    assert payloads(queue) == [{"n": 0}, {"n": 0}]


def test_replace_and_append_change_the_waiting_message(queue: Queue) -> None:
    queue.publish(key="k", payload={"n": 0})
    queue.publish(key="l", payload={"n": 0})

    done = publish_rows(queue, keyed(1, "replace"), keyed(2, "append", key="l"), keyed(3, "append", key="l"))

    assert (done.published, done.rejected) == (3, 0)
    assert payloads(queue) == [1, [{"n": 0}, 2, 3]]


def test_a_row_that_cannot_be_appended_is_rejected_alone(queue: Queue) -> None:
    queue.publish(key="k", body=b"1")

    done = publish_rows(queue, keyed(1, "append"), keyed(2, "append", key="l"))

    assert (done.published, done.rejected) == (1, 1)
    assert "nothing can be appended" in rejected(queue)[0].reason


def test_a_held_key_is_ignored_or_rejected(queue: Queue) -> None:
    queue.policy(key_ttl="1 hour")
    queue.publish(key="k")
    queue.publish(key="l")
    queue.settle("complete", queue.claim())

    done = publish_rows(queue, keyed(1), keyed(2, "ignore", key="l"))

    assert (done.published, done.ignored, done.rejected) == (0, 1, 1)
    assert "is held by message" in rejected(queue)[0].reason


def test_a_full_topic_with_on_full_drop_drops_rows_with_keys_too(queue: Queue) -> None:
    queue.policy(max_depth=1, on_full="drop")

    done = publish_rows(queue, keyed(1), keyed(2, key="l"))

    assert (done.published, done.dropped, done.rejected) == (1, 1, 0)


def test_copies_for_subscribers_have_the_key_and_on_conflict(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 'a')")
    queue.publish("a", key="k", payload={"n": 0})

    done = publish_rows(queue, keyed(1, "ignore"), keyed(2, "error", key="l"))

    assert (done.published, done.rejected) == (2, 0)
    assert payloads(queue) == [{"n": 0}, 2]


def test_delays_apply_to_rows_with_keys(queue: Queue) -> None:
    times = {"available_at": "2100-01-01 00:00+00", "expires_at": "2100-01-02 00:00+00"}

    publish_rows(queue, {**keyed(1, "replace"), **times}, {**keyed(2, key="l"), **times})

    rows = queue.rows("SELECT available_at, expires_at FROM messages.message")
    assert len(rows) == 2
    assert rows[0] == rows[1]
    assert (rows[0].expires_at - rows[0].available_at).days == 1


def test_a_row_that_changes_a_delayed_message_has_the_given_expiry_or_counts_its_ttl_from_there(queue: Queue) -> None:
    times = {"k": {"expires_at": "2090-01-01 00:00+00"}, "l": {"ttl": "1 day"}}
    for key in times:
        queue.send(1, key=key, available_at=datetime(2100, 1, 1, 1, tzinfo=UTC))

    publish_rows(queue, *({**keyed(2, "replace", key=key), **time} for key, time in times.items()))

    ends = queue.rows("SELECT key, (expires_at AT TIME ZONE 'UTC')::date::text AS day FROM messages.message ORDER BY 1")
    assert list(map(tuple, ends)) == [("k", "2090-01-01"), ("l", "2100-01-02")]


@pytest.mark.parametrize("on_conflict", ["replace", "append", "error"])
def test_rows_with_keys_and_without_an_expiry_never_expire(queue: Queue, on_conflict: str) -> None:
    queue.policy(key_ttl="1 hour")

    publish_rows(queue, keyed(1, on_conflict))

    assert queue.value("SELECT expires_at FROM messages.message") is None
    assert len(queue.claim()) == 1


def test_rows_with_keys_have_the_ttl_of_their_topic(queue: Queue) -> None:
    queue.policy(ttl="1 hour")

    publish_rows(queue, keyed(1, "replace"), keyed(2, key="l"))

    ttls = queue.rows("SELECT round(extract(epoch FROM expires_at - available_at)) AS ttl FROM messages.message")
    assert [row.ttl for row in ttls] == [3600, 3600]


def test_a_row_that_has_expired_already_ends_as_expired_and_is_never_run(queue: Queue) -> None:
    publish_rows(queue, {**keyed(1, "replace"), "expires_at": "2020-01-01 00:00+00"})

    assert queue.claim() == []
    assert queue.value("SELECT result FROM messages.message_archive") == "expired"


def test_rows_of_one_key_make_one_message_that_begins_as_the_first_and_ends_as_the_last(queue: Queue) -> None:
    first = {"channel": "c", "priority": 2, "available_at": "2100-01-01 00:00+00", "max_attempts": 3}
    last = {"channel": "d", "priority": 3, "expires_at": "2400-01-02 00:00+00", "headers": '{"b": 2}'}

    done = publish_rows(queue, {**keyed(1, "replace"), **first}, keyed(2, "append"), {**keyed(3, "replace"), **last})

    row = queue.row("SELECT * FROM messages.message")
    assert (done.published, row.payload, row.headers) == (3, 3, {"b": 2})
    assert (row.channel, row.priority, row.max_attempts, row.available_at.year) == ("c", 2, 3, 2100)
    assert row.expires_at.year == 2400


@pytest.mark.parametrize("policy", BY_ONE, ids=str)
def test_what_is_appended_comes_in_order_after_the_last_replacement(queue: Queue, policy: dict[str, Any]) -> None:
    if policy:
        queue.policy(**policy)
    queue.publish(key="k", payload={"n": 0}, headers={"a": 0, "b": 0})
    modes = ["append", "replace", "ignore", "append", "append"]
    rows = [{**keyed(n, mode), "headers": f'{{"h": {n}}}'} for n, mode in enumerate(modes, 1)]
    rows[-1]["payload"] = "[5, 6]"

    done = publish_rows(queue, *rows)

    assert (done.published, done.ignored, done.rejected) == (4, 1, 0)
    assert queue.rows("SELECT payload, headers FROM messages.message") == [([2, 4, 5, 6], {"h": 5})]


def test_of_rows_that_are_appended_to_one_key_only_those_that_do_not_fit_are_rejected(queue: Queue) -> None:
    queue.policy(max_payload_bytes=15)
    rows = [keyed(n, "append") for n in (1, 2, 1_000_000_000, 3)]

    done = publish_rows(queue, *rows)

    assert (done.published, done.rejected) == (3, 1)
    assert payloads(queue) == [[1, 2, 3]]
    assert "max_payload_bytes" in rejected(queue)[0].reason


def test_more_than_one_message_may_hold_is_appended_to_one_key_as_far_as_it_fits(queue: Queue) -> None:
    text = '"' + "x" * 6_000_000 + '"'

    done = publish_rows(queue, *({**keyed(0, "append"), "payload": text} for _ in range(3)))

    assert (done.published, done.rejected) == (2, 1)
    assert len(payloads(queue)[0]) == 2


# messages.job_rejected: the rows of a job that were not published, page by page.

BAD = {"reason": "bad", "given": "{}"}


def test_it_returns_them_page_by_page(queue: Queue) -> None:
    publish_rows(queue, BAD, BAD, BAD, job="j")
    publish_rows(queue, BAD, job="other")

    first = queue.rows("SELECT nth FROM messages.job_rejected('j', p_limit => 2)")
    second = queue.rows("SELECT nth FROM messages.job_rejected('j', p_after => 2)")

    assert (first, second) == ([(1,), (2,)], [(3,)])


def test_the_rows_of_another_users_job_are_refused(queue: Queue) -> None:
    publish_rows(queue, BAD)
    give_to_another_user(queue)

    with pytest.raises(errors.InsufficientPrivilege):
        queue.rows("SELECT * FROM messages.job_rejected('j')")


# messages.job_result: the result of a bulk publish.

RESULT = "SELECT published, ignored, dropped, rejected FROM messages.job_result('j')"


def test_it_returns_the_same_row_as_publish_staged(queue: Queue) -> None:
    publish_rows(queue, {}, {}, {"reason": "bad", "given": "{}"})

    assert queue.rows(RESULT) == [(2, 0, 0, 1)]


def test_an_unpublished_job_has_no_result(queue: Queue) -> None:
    assert queue.rows(RESULT) == []


def test_job_result_a_job_of_another_user_is_refused(queue: Queue) -> None:
    publish_rows(queue, {})
    give_to_another_user(queue)

    with pytest.raises(errors.InsufficientPrivilege):
        queue.rows(RESULT)


# messages.read_own_job: a job, if it is the caller's.


@pytest.mark.parametrize("job", [None, "", "a\nb", "x" * 201])
def test_an_invalid_name_of_a_job_is_refused(queue: Queue, job: str | None) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="job is "):
        queue.call("read_own_job", job)
