"""messages.insert_or_merge, through messages.publish: what becomes of the message that stands under a key, anyone who else is at it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import errors

from tests.sql.queue import Background, Queue

EVERY_MODE = pytest.mark.parametrize("mode", ["replace", "ignore", "append"])
LATER = datetime(2050, 1, 1, tzinfo=UTC)


def test_replace_keeps_the_id_and_the_place_and_takes_the_new_content_and_ttl(queue: Queue) -> None:
    first = queue.send(1, key="k", headers={"a": 1}, priority=2, channel="c", available_at=LATER, ttl="1 h")
    before = queue.message(first.id)

    second = queue.send(2, key="k", on_conflict="replace", headers={"b": 2}, priority=7, channel="d", ttl="1 min")

    after = queue.message(first.id)
    assert (second.id, second.outcome) == (first.id, "replaced")
    assert (after.payload, after.headers) == (2, {"b": 2})
    assert (after.priority, after.channel, after.available_at, after.created_at) == (
        2,
        "c",
        LATER,
        before.created_at,
    )
    assert before.expires_at - LATER == timedelta(hours=1)
    assert after.expires_at - datetime.now(UTC) < timedelta(minutes=2)


def test_replace_takes_off_what_is_not_given_again(queue: Queue) -> None:
    first = queue.send(1, key="k", headers={"a": 1}, ttl="1 h")

    queue.send(2, key="k", on_conflict="replace")

    after = queue.message(first.id)
    assert (after.headers, after.expires_at) == (None, None)


def test_bytes_can_take_the_place_of_json_and_json_that_of_bytes(queue: Queue) -> None:
    first = queue.send({"n": 1}, key="k")

    queue.row("SELECT * FROM messages.publish('t', p_body => 'x', p_key => 'k', p_on_conflict => 'replace')")
    as_bytes = queue.message(first.id)
    queue.send({"n": 2}, key="k", on_conflict="replace")

    assert (as_bytes.payload, as_bytes.body) == (None, b"x")
    assert queue.message(first.id).payload == {"n": 2}


def test_ignore_leaves_the_message_that_stands_as_it_is_and_returns_its_id(queue: Queue) -> None:
    first = queue.send(1, key="k")

    second = queue.send(2, key="k", on_conflict="ignore")

    assert (second.id, second.outcome) == (first.id, "ignored")
    assert queue.message(first.id).payload == 1
    assert queue.ids() == [first.id]


def test_append_gathers_payloads_into_one_array(queue: Queue) -> None:
    sent = [queue.send(payload, key="k", on_conflict="append") for payload in (1, {"n": 2}, [3, [4]], None)]

    assert [s.outcome for s in sent] == ["inserted", "appended", "appended", "appended"]
    assert {s.id for s in sent} == {sent[0].id}
    assert queue.message(sent[0].id).payload == [1, {"n": 2}, 3, [4], None]


def test_the_first_of_those_that_are_appended_is_an_array_already(queue: Queue) -> None:
    sent = queue.send(1, key="k", on_conflict="append")

    assert queue.message(sent.id).payload == [1]


def test_what_was_published_otherwise_becomes_the_first_element(queue: Queue) -> None:
    sent = queue.send({"n": 1}, key="k")

    queue.send(2, key="k", on_conflict="append")

    assert queue.message(sent.id).payload == [{"n": 1}, 2]


def test_append_keeps_headers_and_adds_the_new_ones(queue: Queue) -> None:
    sent = queue.send(1, key="k", headers={"a": 1, "b": 1})
    queue.send(2, key="k", on_conflict="append", headers={"b": 2})
    queue.send(3, key="k", on_conflict="append")

    assert queue.message(sent.id).headers == {"a": 1, "b": 2}


def test_nothing_can_be_appended_to_bytes_and_the_error_shows_none_of_them(queue: Queue) -> None:
    published = queue.publish(body=b"s3cret", key="k")

    with pytest.raises(errors.InvalidParameterValue, match=f"message {published} of key .* has a body") as caught:
        queue.send("s3cret too", key="k", on_conflict="append")

    assert "s3cret" not in str(caught.value)


def test_a_plain_error_names_the_message_that_stands(queue: Queue) -> None:
    first = queue.send(key="k")

    with pytest.raises(errors.UniqueViolation, match=f'key "k" of topic t stands already: message {first.id} waits'):
        queue.send(key="k")


@EVERY_MODE
def test_keys_of_other_topics_are_strangers(queue: Queue, mode: str) -> None:
    queue.send(1, "a", key="k")

    assert queue.send(2, "b", key="k", on_conflict=mode).outcome == "inserted"


@EVERY_MODE
def test_a_message_that_runs_is_not_touched_and_this_one_is_new(queue: Queue, mode: str) -> None:
    first = queue.send(1, key="k")
    claimed = queue.claim_one()

    second = queue.send(2, key="k", on_conflict=mode)

    assert second.outcome == "inserted"
    assert second.id != first.id
    assert queue.message(first.id).payload == 1
    assert queue.settle("complete", [claimed]) == []


@EVERY_MODE
def test_a_message_that_was_attempted_is_not_touched_although_it_is_ready_again(queue: Queue, mode: str) -> None:
    first = queue.send(1, key="k", max_attempts=3)
    queue.settle("retry", queue.claim(), ["boom"])

    second = queue.send(2, key="k", on_conflict=mode)

    assert second.outcome == "inserted"
    assert queue.message(first.id).payload == 1


@EVERY_MODE
def test_one_that_somebody_else_is_just_publishing_is_waited_for(
    queue: Queue, other: Queue, background: Background, mode: str, eventually: Callable[..., Any]
) -> None:
    with other.conn.transaction():
        first = other.send(1, key="k")
        second = background.start(queue.send, 2, key="k", on_conflict=mode)
        eventually(lambda: background.is_blocked(queue))

    assert second.result(timeout=60).id == first.id
    assert second.result().outcome != "inserted"


@EVERY_MODE
def test_one_whose_publish_is_rolled_back_leaves_room_for_this_one(
    queue: Queue, other: Queue, background: Background, mode: str, eventually: Callable[..., Any]
) -> None:
    with other.conn.transaction(force_rollback=True):
        other.send(1, key="k")
        second = background.start(queue.send, 2, key="k", on_conflict=mode)
        eventually(lambda: background.is_blocked(queue))

    assert second.result(timeout=60).outcome == "inserted"
    assert queue.ids() == [second.result().id]


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_one_that_is_just_being_claimed_is_waited_for_and_then_left_alone_without_a_lock(
    queue: Queue, other: Queue, third: Queue, background: Background, mode: str, eventually: Callable[..., Any]
) -> None:
    first = queue.send(1, key="k")
    with queue.conn.transaction():
        with other.conn.transaction():
            (claimed,) = other.claim()
            second = background.start(queue.send, 2, key="k", on_conflict=mode)
            eventually(lambda: background.is_blocked(queue))
        assert second.result(timeout=60).outcome == "inserted"
        # The publisher's transaction is still open: a lock on the row would hold these up.
        third.conn.execute("SET lock_timeout = '1 s'")
        assert third.settle("heartbeat", [claimed]) == []
        assert third.settle("complete", [claimed]) == []

    assert queue.archived(first.id).payload == 1
    assert queue.ids() == [second.result().id]


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_one_that_is_just_being_cancelled_is_waited_for_and_this_one_is_new(
    queue: Queue, other: Queue, background: Background, mode: str, eventually: Callable[..., Any]
) -> None:
    first = queue.send(1, key="k")
    with other.conn.transaction():
        other.call("cancel", [first.id])
        second = background.start(queue.send, 2, key="k", on_conflict=mode)
        eventually(lambda: background.is_blocked(queue))

    assert second.result(timeout=60).outcome == "inserted"


def test_one_that_is_just_being_cancelled_stands_for_ignore_until_that_is_committed(queue: Queue, other: Queue) -> None:
    first = queue.send(1, key="k")
    with other.conn.transaction():
        other.call("cancel", [first.id])
        before = queue.send(2, key="k", on_conflict="ignore")
    after = queue.send(3, key="k", on_conflict="ignore")

    assert (before.outcome, after.outcome) == ("ignored", "inserted")


def test_many_publishers_of_few_keys_against_workers_lose_nothing_and_never_fail(
    queue: Queue, other: Queue, third: Queue, background: Background
) -> None:
    def publish(by: Queue, mode: str) -> list[tuple[int, str]]:
        return [tuple(by.send([n], key=f"k{n % 3}", on_conflict=mode)) for n in range(150)]

    def work(by: Queue) -> None:
        for _ in range(60):
            by.settle("complete", by.claim(limit=2))

    worker = Queue(third.conn)
    appending = background.start(publish, queue, "append")
    appending_too = background.start(publish, other, "append")
    background.start(work, worker).result(60)
    sent = appending.result(60) + appending_too.result(60)
    worker.settle("complete", worker.claim())

    assert {what for _, what in sent} == {"inserted", "appended"}
    gathered = [n for row in queue.rows("SELECT payload FROM messages.message_archive") for n in row.payload]
    assert sorted(gathered) == sorted([*range(150), *range(150)])
