"""A message's own timeout, backoff and retention: what they take precedence over, and who keeps them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.deaths import copy_of, die, outcomes
from tests.sql.queue import Queue, Row
from tests.sql.staging import publish_rows

BACKOFF = {"kind": "constant", "base": "7 s"}
OWN: dict[str, Any] = {"timeout": "90 s", "backoff": BACKOFF, "retention": "90 days"}
READ = (timedelta(seconds=90), BACKOFF, timedelta(days=90))


def own(row: Row) -> tuple[Any, ...]:
    return (row.timeout, row.backoff, row.retention)


def fail(queue: Queue, message: int, **named: Any) -> timedelta:
    """Fail the message, which is claimed, and return how long the next attempt waits."""
    (claimed,) = [each for each in queue.claim() if each.id == message]
    assert queue.settle("retry", [claimed], ["boom"], **named) == []
    return queue.message(message).available_at - queue.call("now")


@pytest.fixture
def stopped_clock(queue: Queue) -> None:
    queue.stop_clock("2030-01-01 12:00+00")


def test_the_function_and_an_insert_store_them(queue: Queue) -> None:
    called = queue.send(**OWN).id
    keyed = queue.send(key="k", on_conflict="replace", **OWN).id
    inserted = queue.publish(**OWN)

    assert [own(queue.message(each)) for each in (called, keyed, inserted)] == [READ] * 3


def test_a_claim_returns_the_own_timeout_before_that_of_the_topic(queue: Queue) -> None:
    queue.policy("t", timeout="10 s")
    plain, timed = queue.publish(), queue.publish(timeout="1500 ms")
    in_channel = queue.publish(timeout="20 days", channel="c")

    claimed = queue.claim()

    assert {each.id: each.timeout_s for each in claimed} == {plain: 10, timed: 1.5, in_channel: 20 * 86400}
    read = queue.rows(
        "SELECT * FROM messages.read_claimed(%s, %s)", [[c.id for c in claimed], [c.claim_id for c in claimed]]
    )
    assert {each.id: each.timeout_s for each in read} == {each.id: each.timeout_s for each in claimed}


def test_a_claim_of_the_message_that_a_worker_was_notified_of_has_its_timeout_too(queue: Queue) -> None:
    timed = queue.publish(timeout="2 s")

    (claimed,), _ = queue.claim_with_next_due(message_id=timed)

    assert claimed.timeout_s == 2


@pytest.mark.usefixtures("stopped_clock")
def test_the_own_backoff_takes_precedence_over_that_of_the_topic(queue: Queue) -> None:
    queue.policy("t", backoff={"kind": "constant", "base": "60 s"}, max_attempts=5)
    message = queue.publish(backoff={"kind": "linear", "base": "5 s", "step": "2 s"})

    assert fail(queue, message) == timedelta(seconds=5)
    queue.later("5 s")
    assert fail(queue, message) == timedelta(seconds=7)
    assert fail(queue, queue.publish()) == timedelta(seconds=60)


@pytest.mark.usefixtures("stopped_clock")
def test_its_max_total_ends_the_message(queue: Queue) -> None:
    queue.policy("t", max_attempts=5)
    message = queue.publish(backoff={"kind": "constant", "base": "40 s", "max_total": "30 s"})

    queue.settle("retry", queue.claim(), ["boom"])

    assert queue.archived(message).result == "failed"


@pytest.mark.usefixtures("stopped_clock")
def test_after_an_expired_lock_the_lock_expired_delay_of_the_topic_comes_first(queue: Queue) -> None:
    queue.policy("t", max_attempts=5)
    message = queue.publish(backoff=BACKOFF)

    assert fail(queue, message, result="lock_expired") == timedelta(seconds=7)
    queue.later("7 s")
    queue.policy("t", lock_expired_delay="3 s")
    assert fail(queue, message, result="lock_expired") == timedelta(seconds=3)


def test_they_survive_every_way_back_into_the_queue(queue: Queue) -> None:
    queue.policy("t", max_attempts=5)
    message = queue.publish(**OWN)

    for way in ("retry", "defer", "release"):
        queue.conn.execute("UPDATE messages.message SET available_at = now()")
        queue.settle(way, queue.claim(), *([["boom"]] if way == "retry" else []))
        assert own(queue.message(message)) == READ, way


@pytest.mark.parametrize("result", ["success", "failed"])
def test_the_archive_has_them(queue: Queue, result: str) -> None:
    message = queue.publish(**OWN)

    claimed = queue.claim()
    queue.settle("complete", claimed) if result == "success" else queue.settle("fail", claimed, ["boom"])

    assert (queue.archived(message).result, own(queue.archived(message))) == (result, READ)


def test_a_redrive_a_replay_and_a_dead_letter_have_them(queue: Queue) -> None:
    queue.policy("t", dead_letter=True)
    dead = die(queue, **OWN)
    copy = copy_of(queue, dead).id
    assert own(queue.message(copy)) == READ

    (redriven,) = queue.rows("SELECT * FROM messages.redrive(%s)", [[dead]])
    assert own(queue.message(redriven.message_id)) == READ

    queue.settle("complete", queue.claim())
    replayed = queue.row("SELECT * FROM messages.replay('t', now() - interval '1 hour', now() + interval '1 hour')")
    assert own(queue.message(replayed.message_id)) == READ


def test_a_dead_letter_whose_archive_row_is_gone_comes_back_with_them(queue: Queue) -> None:
    queue.policy("t", dead_letter=True)
    dead = die(queue, **OWN)
    copy = copy_of(queue, dead).id
    queue.conn.execute("DELETE FROM messages.message_archive")

    assert outcomes(queue, "requeue_dead_letters", [copy]) == {copy: "redriven"}

    (back,) = queue.rows("SELECT * FROM messages.message WHERE topic = 't'")
    assert own(back) == READ


@pytest.mark.parametrize("key", [None, "k"])
def test_copies_for_subscribers_have_them(queue: Queue, key: str | None) -> None:
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 's')")

    queue.send(key=key, **OWN)

    (copy,) = queue.rows("SELECT * FROM messages.message WHERE topic = 's'")
    assert own(copy) == READ


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_a_message_that_is_replaced_or_appended_to_keeps_its_own(queue: Queue, mode: str) -> None:
    first = queue.send(key="k", **OWN).id

    queue.send(2, key="k", on_conflict=mode, timeout="1 s", backoff={"kind": "none"}, retention="2 hours")

    assert own(queue.message(first)) == READ


def test_staged_rows_have_them_with_a_key_and_without(queue: Queue) -> None:
    publish_rows(queue, OWN, {"key": "a", **OWN}, {"key": "b", "on_conflict": "replace", **OWN})

    assert [own(each) for each in queue.rows("SELECT * FROM messages.message")] == [READ] * 3


WRONG = [
    ("timeout", "0", "timeout is 00:00:00: use an interval from 1 ms to 30 days"),
    ("timeout", "-1 s", "timeout is -00:00:01: use"),
    ("timeout", "31 days", "timeout is 31 days: use"),
    ("retention", "59 minutes", "retention is 00:59:00: use an interval from 1 hour to 36500 days"),
    ("retention", "36501 days", "retention is 36501 days: use"),
    ("backoff", Jsonb("often"), "backoff: it is of type string: use an object"),
    ("backoff", Jsonb(None), "backoff: it is of type null: use an object"),
    ("backoff", {}, "backoff: kind is missing: use none, constant, linear or exponential"),
    ("backoff", {"kind": "cubic"}, 'backoff: kind is "cubic": use none'),
    ("backoff", {"kind": "constant", "base": "-1 s"}, 'backoff: base is "-1 s": use an interval'),
    ("backoff", {"kind": "constant", "jitter": "NaN"}, 'backoff: jitter is "NaN": use'),
    ("backoff", {"kind": "none", "bas": 1}, 'backoff: unknown key "bas": known keys'),
]


def test_what_cannot_be_is_refused_with_a_sentence_and_an_insert_of_it_with_its_constraint(queue: Queue) -> None:
    for name, value, said in WRONG:
        with pytest.raises(errors.InvalidParameterValue) as refused:
            queue.send(**{name: value})
        assert (refused.value.diag.message_primary or "").startswith(f"publish: {said}")

        with pytest.raises(errors.CheckViolation) as violated:
            queue.publish(**{name: value})
        assert (violated.value.diag.constraint_name or "").startswith(f"message_{name}_is_")


def test_the_bounds_are_allowed(queue: Queue) -> None:
    bounds = {"timeout": ("1 ms", "30 days"), "retention": ("1 hour", "36500 days", "1 month")}
    for name, value in [(name, value) for name, values in bounds.items() for value in values]:
        own: dict[str, Any] = {name: value}
        assert queue.message(queue.send(**own).id)
        assert queue.message(queue.publish(**own))


def test_a_publisher_may_give_all_of_them(queue: Queue) -> None:
    queue.conn.execute("SET ROLE messages_publisher")
    ids = [queue.publish(**OWN), queue.send(**OWN).id]
    queue.conn.execute("RESET ROLE")

    assert [own(queue.message(each)) for each in ids] == [READ] * 2


def test_explain_names_them_where_they_decide(queue: Queue) -> None:
    queue.policy("t", max_attempts=2, backoff={"kind": "constant", "base": "1 hour"})
    message = queue.publish(timeout="90 s", retention="90 days", backoff={"kind": "constant", "base": "1 hour"})
    plain = queue.publish()

    def explained(each: int) -> Row:
        return queue.rows("SELECT * FROM messages.explain(%s)", [each])[0]

    claimed = queue.claim()
    running = explained(message)
    assert "; its own timeout is 90s" in running.reason
    assert running.detail["timeout"] == "00:01:30"
    assert "own" not in explained(plain).reason

    queue.settle("retry", claimed, ["boom", "boom"])
    retrying = explained(message)
    assert retrying.reason.endswith("; it has its own backoff: constant")
    assert retrying.detail["backoff"]["base"] == "1 hour"
    assert "own" not in explained(plain).reason

    queue.conn.execute("UPDATE messages.message SET available_at = now()")
    queue.settle("complete", queue.claim())
    ended = explained(message)
    assert "; its own retention keeps it until " in ended.reason
    assert "kept_until" in ended.detail
    assert "own" not in explained(plain).reason


@pytest.mark.parametrize(
    "backoff", ['{"kind": "exponential", "factor": "' + " " * 2000 + '2"}', '{"kind": [' + "1e131071, " * 5000 + "1]}"]
)
def test_a_large_backoff_is_refused_before_it_is_written_out(queue: Queue, backoff: str) -> None:
    with pytest.raises(errors.CheckViolation, match="message_backoff_is_valid"):
        queue.conn.execute("INSERT INTO messages.message (topic, payload, backoff) VALUES ('t', '1', %s)", [backoff])
    with pytest.raises(errors.InvalidParameterValue, match="larger than 1000 bytes"):
        queue.conn.execute("SELECT messages.publish('t', '1', p_backoff => %s::text::jsonb)", [backoff])
