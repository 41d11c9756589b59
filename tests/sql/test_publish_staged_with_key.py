"""messages.publish_staged_with_key: of rows with one key one is published, and on_conflict decides about the others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue
from tests.sql.staging import publish_rows, rejected

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
    text = '"' + "x" * 3_000_000 + '"'

    done = publish_rows(queue, *({**keyed(0, "append"), "payload": text} for _ in range(7)))

    assert (done.published, done.rejected) == (5, 2)
    assert len(payloads(queue)[0]) == 5
