"""Keys: a second publish updates the message that waits, never one that runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.server.postgres import Database
from tests.sql.queue import Background, Queue

# messages.hold_keys: which keys a publish writes into held_key. The effects are in test_publish_with_key.py.

HOLD = "SELECT messages.hold_keys(%s, %s, %s, %s)"


def held(queue: Queue) -> list[tuple[str, str, int]]:
    return [(h.topic, h.key, h.message_id) for h in queue.rows("SELECT * FROM messages.held_key ORDER BY topic, key")]


def test_a_redriven_message_takes_a_free_key_and_leaves_a_held_one(queue: Queue) -> None:
    queue.policy("t", key_ttl="1 hour")
    queue.conn.execute("INSERT INTO messages.held_key VALUES ('t', 'held', 1)")

    queue.rows(HOLD, [[2, 3], ["t", "t"], ["held", "free"], [True, True]])

    assert held(queue) == [("t", "free", 3), ("t", "held", 1)]


def test_of_two_concurrent_publishes_of_a_key_the_second_is_refused(
    queue: Queue, other: Queue, background: Background
) -> None:
    queue.policy("t", key_ttl="1 hour")
    with other.conn.transaction():
        other.rows(HOLD, [[1], ["t"], ["k"], [False]])
        second = background.start_blocked(queue, queue.rows, HOLD, [[2], ["t"], ["k"], [False]])

    with pytest.raises(errors.UniqueViolation, match="held by message 1 until it has ended"):
        second.result(timeout=60)


# As if a second passed before each look at the holder.
SLOW_LOOK = """
    ALTER FUNCTION messages.key_holder RENAME TO found_holder;
    CREATE FUNCTION messages.key_holder(p_topic text, p_key text) RETURNS messages.held_key
    BEGIN ATOMIC
      SELECT set_config('messages.fake_now', (messages.now() + interval '1 s')::text, false);
      SELECT messages.found_holder(p_topic, p_key);
    END
"""


def test_a_key_that_becomes_free_between_two_looks_at_its_holder_is_taken(
    own_queue: Queue, own_database: Database, background: Background
) -> None:
    own_queue.policy("t", key_ttl="1 hour")
    own_queue.conn.execute(SLOW_LOOK)
    own_queue.stop_clock("2026-01-01 12:00:00+00")
    first = Queue(own_database.connect())
    with first.conn.transaction():
        first.conn.execute("INSERT INTO messages.held_key VALUES ('t', 'k', 1, '2026-01-01 12:00:01.5+00')")
        second = background.start_blocked(own_queue, own_queue.rows, HOLD, [[2], ["t"], ["k"], [False]])

    second.result(timeout=60)

    assert held(own_queue) == [("t", "k", 2)]


# messages.insert_or_merge, through messages.publish: what on_conflict does to the waiting message of a key, with any
# concurrent sessions.

EVERY_MODE = pytest.mark.parametrize("mode", ["replace", "ignore", "append"])
LATER = datetime(2050, 1, 1, tzinfo=UTC)


def test_replace_keeps_id_and_position_and_takes_the_new_content_and_ttl(queue: Queue) -> None:
    first = queue.send(1, key="k", headers={"a": 1}, priority=2, channel="c", available_at=LATER, ttl="1 h")
    before = queue.message(first.id)

    second = queue.send(2, key="k", on_conflict="replace", headers={"b": 2}, priority=7, channel="d", ttl="1 min")

    after = queue.message(first.id)
    assert (second.id, second.outcome) == (first.id, "replaced")
    assert (after.payload, after.headers) == (2, {"b": 2})
    assert (after.priority, after.channel, after.available_at, after.created_at) == (2, "c", LATER, before.created_at)
    assert before.expires_at - LATER == timedelta(hours=1)
    assert timedelta(seconds=59) < after.expires_at - LATER <= timedelta(minutes=1)


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_a_ttl_counts_from_the_time_of_the_message_that_waits(queue: Queue, mode: str) -> None:
    queue.policy("t", ttl="1 h")
    sent = [queue.send(1, key=key, available_at=at).id for key, at in (("now", None), ("late", LATER))]

    for key in ("now", "late"):
        queue.send(2, key=key, on_conflict=mode)

    now, late = map(queue.message, sent)
    assert timedelta(minutes=59) < now.expires_at - datetime.now(UTC) <= timedelta(hours=1)
    assert timedelta(minutes=59) < late.expires_at - LATER <= timedelta(hours=1)


def test_a_ttl_counts_from_now_if_a_wait_for_an_event_ends(queue: Queue) -> None:
    first = queue.send(1, key="k").id
    queue.settle("wait_for_event", [queue.claim_one()], ["paid"], [1], [timedelta(days=7)])

    assert queue.send(2, key="k", on_conflict="replace", ttl="1 h").id == first

    assert timedelta(0) < queue.message(first).expires_at - datetime.now(UTC) <= timedelta(hours=1)


def test_replace_removes_what_is_not_given_again(queue: Queue) -> None:
    first = queue.send(1, key="k", headers={"a": 1}, ttl="1 h")

    queue.send(2, key="k", on_conflict="replace")

    after = queue.message(first.id)
    assert (after.headers, after.expires_at) == (None, None)


def test_bytes_can_replace_json_and_json_can_replace_bytes(queue: Queue) -> None:
    first = queue.send({"n": 1}, key="k")

    queue.row("SELECT * FROM messages.publish('t', p_body => 'x', p_key => 'k', p_on_conflict => 'replace')")
    as_bytes = queue.message(first.id)
    queue.send({"n": 2}, key="k", on_conflict="replace")

    assert (as_bytes.payload, as_bytes.body) == (None, b"x")
    assert queue.message(first.id).payload == {"n": 2}


def test_replace_deletes_the_steps_that_a_released_run_saved_for_the_old_payload(queue: Queue) -> None:
    first = queue.send("1", key="k").id
    claimed = queue.claim_one()
    queue.call("save_step", claimed.id, claimed.claim_id, "step", '"of the old payload"')
    queue.settle("release", [claimed])

    assert queue.send("2", key="k", on_conflict="replace").id == first

    again = queue.claim_one()
    assert queue.rows("SELECT * FROM messages.load_steps(%s, %s)", [again.id, again.claim_id]) == [(None, None)]


@pytest.mark.parametrize(("on_conflict", "kept"), [("replace", None), ("append", {"page": 5})])
def test_replace_clears_the_state_that_a_deferred_run_kept_for_the_old_payload(
    queue: Queue, on_conflict: str, kept: Any
) -> None:
    first = queue.send(1, key="k").id
    queue.settle("defer", [queue.claim_one()], [timedelta(0)], None, [Jsonb({"page": 5})])

    assert queue.send(2, key="k", on_conflict=on_conflict).id == first

    assert queue.message(first).state == kept


def test_ignore_leaves_the_waiting_message_and_returns_its_id(queue: Queue) -> None:
    first = queue.send(1, key="k")

    second = queue.send(2, key="k", on_conflict="ignore")

    assert (second.id, second.outcome) == (first.id, "ignored")
    assert queue.message(first.id).payload == 1
    assert queue.ids() == [first.id]


def test_append_collects_payloads_in_one_array(queue: Queue) -> None:
    sent = [queue.send(payload, key="k", on_conflict="append") for payload in (1, {"n": 2}, [3, [4]], None)]

    assert [s.outcome for s in sent] == ["inserted", "appended", "appended", "appended"]
    assert {s.id for s in sent} == {sent[0].id}
    assert queue.message(sent[0].id).payload == [1, {"n": 2}, 3, [4], None]


def test_a_payload_that_was_published_without_append_becomes_the_first_element(queue: Queue) -> None:
    sent = queue.send({"n": 1}, key="k")

    queue.send(2, key="k", on_conflict="append")

    assert queue.message(sent.id).payload == [{"n": 1}, 2]


def test_append_keeps_headers_and_adds_the_new_ones(queue: Queue) -> None:
    sent = queue.send(1, key="k", headers={"a": 1, "b": 1})
    queue.send(2, key="k", on_conflict="append", headers={"b": 2})
    queue.send(3, key="k", on_conflict="append")

    assert queue.message(sent.id).headers == {"a": 1, "b": 2}


def test_appending_to_bytes_is_refused_and_the_error_does_not_show_them(queue: Queue) -> None:
    published = queue.publish(body=b"s3cret", key="k")

    with pytest.raises(errors.InvalidParameterValue, match=f"message {published} of key .* has a body") as caught:
        queue.send("s3cret too", key="k", on_conflict="append")

    assert "s3cret" not in str(caught.value)


def test_the_error_of_on_conflict_error_names_the_waiting_message(queue: Queue) -> None:
    first = queue.send(key="k")

    with pytest.raises(errors.UniqueViolation, match=f'key "k" of topic t is in use: message {first.id} waits'):
        queue.send(key="k")


@EVERY_MODE
def test_the_same_key_in_another_topic_is_another_key(queue: Queue, mode: str) -> None:
    queue.send(1, "a", key="k")

    assert queue.send(2, "b", key="k", on_conflict=mode).outcome == "inserted"


@EVERY_MODE
def test_a_running_message_is_not_changed_and_a_new_one_is_inserted(queue: Queue, mode: str) -> None:
    first = queue.send(1, key="k")
    claimed = queue.claim_one()

    second = queue.send(2, key="k", on_conflict=mode)

    assert second.outcome == "inserted"
    assert second.id != first.id
    assert queue.message(first.id).payload == 1
    assert queue.settle("complete", [claimed]) == []


@EVERY_MODE
def test_a_message_that_was_attempted_is_not_changed_although_it_is_ready_again(queue: Queue, mode: str) -> None:
    first = queue.send(1, key="k", max_attempts=3)
    queue.settle("retry", queue.claim(), ["boom"])

    second = queue.send(2, key="k", on_conflict=mode)

    assert second.outcome == "inserted"
    assert queue.message(first.id).payload == 1


@EVERY_MODE
def test_an_uncommitted_message_of_the_key_is_waited_for(
    queue: Queue, other: Queue, background: Background, mode: str
) -> None:
    with other.conn.transaction():
        first = other.send(1, key="k")
        second = background.start_blocked(queue, queue.send, 2, key="k", on_conflict=mode)

    assert second.result(timeout=60).id == first.id
    assert second.result().outcome != "inserted"


@EVERY_MODE
def test_after_a_rollback_of_the_other_publish_this_message_is_inserted(
    queue: Queue, other: Queue, background: Background, mode: str
) -> None:
    with other.conn.transaction(force_rollback=True):
        other.send(1, key="k")
        second = background.start_blocked(queue, queue.send, 2, key="k", on_conflict=mode)

    assert second.result(timeout=60).outcome == "inserted"
    assert queue.ids() == [second.result().id]


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_a_message_that_is_being_claimed_is_waited_for_and_then_left_unlocked(
    queue: Queue, other: Queue, third: Queue, background: Background, mode: str
) -> None:
    first = queue.send(1, key="k")
    with queue.conn.transaction():
        with other.conn.transaction():
            (claimed,) = other.claim()
            second = background.start_blocked(queue, queue.send, 2, key="k", on_conflict=mode)
        assert second.result(timeout=60).outcome == "inserted"
        # The publisher's transaction is still open: a lock on the row would block these.
        third.conn.execute("SET lock_timeout = '1 s'")
        assert third.settle("heartbeat", [claimed]) == []
        assert third.settle("complete", [claimed]) == []

    assert queue.archived(first.id).payload == 1
    assert queue.ids() == [second.result().id]


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_a_message_that_is_being_cancelled_is_waited_for_and_a_new_one_is_inserted(
    queue: Queue, other: Queue, background: Background, mode: str
) -> None:
    first = queue.send(1, key="k")
    with other.conn.transaction():
        other.call("cancel", [first.id])
        second = background.start_blocked(queue, queue.send, 2, key="k", on_conflict=mode)

    assert second.result(timeout=60).outcome == "inserted"


def test_ignore_returns_a_message_that_is_being_cancelled_until_the_cancel_commits(queue: Queue, other: Queue) -> None:
    first = queue.send(1, key="k")
    with other.conn.transaction():
        other.call("cancel", [first.id])
        before = queue.send(2, key="k", on_conflict="ignore")
    after = queue.send(3, key="k", on_conflict="ignore")

    assert (before.outcome, after.outcome) == ("ignored", "inserted")
