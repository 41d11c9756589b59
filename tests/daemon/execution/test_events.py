"""ctx.wait_for_event: a handler waits for an event without a worker, whatever happens to its attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.process import Daemon, Journal, end_locks
from tests.server.deadline import eventually
from tests.sql.queue import Queue, Row

Start = Callable[..., Daemon]
BY = {"by": "anna"}
WAITS = "SELECT claim_id IS NULL AND history -> -1 ->> 'outcome' = 'waiting' FROM messages.message WHERE id = %s"


def signal(queue: Queue, message_id: int, payload: Any = BY, name: str = "approved") -> None:
    assert queue.call("signal", message_id, name, Jsonb(payload)) == message_id


def until_it_waits(queue: Queue, message_id: int) -> None:
    # A child is a new interpreter: on a busy machine its start is slow.
    eventually(lambda: queue.value(WAITS, [message_id]), within_s=90)


def ended(queue: Queue, message_id: int) -> Row:
    return eventually(lambda: queue.archived(message_id), within_s=90)


HANDLERS = {
    "loop": "events:approve",
    "thread": "events:approve_in_thread",
    "process": {"handler": "events:approve_in_process", "isolation": "process"},
    "process.async": {"handler": "events:approve_in_process_async", "isolation": "process"},
}


@pytest.mark.parametrize("topic", list(HANDLERS))
def test_a_handler_of_each_kind_waits_without_a_place_and_goes_on_with_its_event(
    start: Start, queue: Queue, topic: str
) -> None:
    queue.policy(topic, max_concurrency=1)
    start({topic: HANDLERS[topic]}, concurrency=1)
    first, second = queue.publish(topic, payload=Jsonb({})), queue.publish(topic, payload=Jsonb({}))
    for each in (first, second):
        until_it_waits(queue, each)

    signal(queue, second)
    signal(queue, first)

    for each in (first, second):
        archived = ended(queue, each)
        assert archived.result == "success", archived.error
        assert archived.output == {"by": "anna", "attempt": 1, "runs": 2}


@pytest.mark.parametrize("topic", list(HANDLERS))
def test_a_signal_before_the_wait_reaches_a_handler_of_each_kind(start: Start, queue: Queue, topic: str) -> None:
    published = queue.publish(topic, payload=Jsonb({}))
    signal(queue, published)

    start({topic: HANDLERS[topic]})

    archived = ended(queue, published)
    assert (archived.result, archived.output["by"]) == ("success", "anna")


@pytest.mark.long
@pytest.mark.parametrize("topic", list(HANDLERS))
def test_a_time_out_raises_in_a_handler_of_each_kind(start: Start, queue: Queue, topic: str) -> None:
    start({topic: HANDLERS[topic]})

    archived = ended(queue, queue.publish(topic, payload=Jsonb({"timeout": "1s"})))

    assert archived.result == "failed"
    assert "EventTimeout: event 'approved' did not come in time" in archived.error


def test_its_steps_are_kept_while_it_waits(start: Start, queue: Queue, journal: Journal) -> None:
    start({"job": "events:approve"})
    published = queue.publish("job", payload=Jsonb({}))
    until_it_waits(queue, published)

    signal(queue, published)

    ended(queue, published)
    assert len(journal.entries("asked")) == 1
    assert queue.value("SELECT count(*) FROM messages.step") == 0


def test_a_time_out_is_the_same_in_each_attempt_although_the_event_comes_after_it(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("job", max_attempts=3, backoff={"kind": "constant", "base": "1h"})
    start({"job": "events:catch_timeout"})
    published = queue.publish("job", payload=Jsonb({"timeout": "1s", "fails": [1, 2]}))
    for attempt in (1, 2):
        eventually(lambda: len(journal.entries("decided")) == attempt, within_s=60)  # noqa: B023
        eventually(lambda: queue.message(published).claim_id is None)
        signal(queue, published)
        queue.call("retry_now", [published])

    assert ended(queue, published).output == "EventTimeout"
    assert {entry["outcome"] for entry in journal.entries("decided")} == {"EventTimeout"}


def test_two_waits_for_one_name_get_two_events_in_their_order(start: Start, queue: Queue) -> None:
    start({"job": "events:two_of_a_name"})
    published = queue.publish("job")
    until_it_waits(queue, published)
    signal(queue, published, 1, "answer")
    eventually(lambda: queue.value(WAITS, [published]) and queue.message(published).runs == 2)

    signal(queue, published, 2, "answer")

    assert ended(queue, published).output == [1, 2]


def test_an_event_is_not_lost_if_the_worker_dies_right_after_it_has_got_it(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("job", max_attempts=3, lock_expired_delay="0 s")
    first = start({"job": "events:die_after_the_event"})
    published = queue.publish("job")
    until_it_waits(queue, published)
    signal(queue, published)
    first.exit_code()
    end_locks(queue.conn, first)

    start({"job": "events:die_after_the_event"})

    assert ended(queue, published).output == BY
    assert [entry["payload"] for entry in journal.entries("got")] == [BY, BY]


def test_a_worker_that_dies_while_others_wait_changes_nothing_for_them(start: Start, queue: Queue) -> None:
    first = start({"job": "events:approve"})
    published = queue.publish("job", payload=Jsonb({}))
    until_it_waits(queue, published)
    first.kill()
    signal(queue, published)

    start({"job": "events:approve"})

    assert ended(queue, published).output["by"] == "anna"


def test_a_handler_cleans_up_before_the_message_is_handed_back(start: Start, queue: Queue, journal: Journal) -> None:
    start({"job": "events:clean_up"})
    published = queue.publish("job")
    until_it_waits(queue, published)

    signal(queue, published)

    assert ended(queue, published).output == "approved"
    assert [entry["lost"] for entry in journal.entries("cleaned")] == [False, False]


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        ("forget_to_await", "ctx.wait_for_event(...) was not awaited, and waited for nothing: await it"),
        ("in_a_transaction", "ctx.wait_for_event() in a transaction, which cannot stay open"),
    ],
)
def test_a_wait_that_cannot_be_fails_the_attempt(start: Start, queue: Queue, handler: str, error: str) -> None:
    start({"job": f"events:{handler}"})

    archived = ended(queue, queue.publish("job"))

    assert archived.result == "failed"
    assert error in archived.error


def test_a_payload_that_does_not_fit_fails_the_attempt(start: Start, queue: Queue) -> None:
    start({"job": "events:wrong_type"})
    published = queue.publish("job")
    signal(queue, published, {"by": 5})

    assert "InvalidEvent: the payload of event 'approved' is no Approval" in ended(queue, published).error


def test_a_batch_handler_learns_that_it_cannot_wait(start: Start, queue: Queue) -> None:
    start({"job": {"handler": "events:batch", "batch_size": 10}})

    assert "a batch handler cannot wait for an event" in ended(queue, queue.publish("job")).error


def test_a_handler_continues_another_message_exactly_once(start: Start, queue: Queue) -> None:
    start({"job": "events:approve", "other": "events:signal_another"})
    published = queue.publish("job", payload=Jsonb({}))
    until_it_waits(queue, published)

    queue.publish("other", payload=Jsonb({"id": published}))

    assert ended(queue, published).output["by"] == "a handler"


def test_a_sleeping_worker_is_woken_by_a_signal(start: Start, queue: Queue) -> None:
    start({"job": "events:approve"})
    published = queue.publish("job", payload=Jsonb({}))
    until_it_waits(queue, published)
    eventually(lambda: queue.value("SELECT count(*) FROM messages.sleeper") == 1)

    signal(queue, published)

    assert ended(queue, published).output["by"] == "anna"


def test_a_handler_hands_out_a_url_that_is_good_for_its_own_event(start: Start, queue: Queue, journal: Journal) -> None:
    start({"job": "events:hand_out"}, sections={"web": {"url": "https://queue.example"}})
    published = queue.publish("job", payload=Jsonb({}))

    url = urlsplit(journal.entry("url", published)["url"])
    given = dict(parse_qsl(url.query))
    until, number = int(given["until"]), int(given["number"])

    assert (url.netloc, url.path) == ("queue.example", f"/signal/{published}/approved")
    assert queue.call("check_signal", published, "approved", until, number, given["signature"]) == "valid"
    assert queue.call("check_signal", published, "declined", until, number, given["signature"]) == "invalid"
