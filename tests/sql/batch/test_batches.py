"""What messages.create_batch, close_batch, cancel_batch and redrive_batch do, and how the ends of messages count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.sql.queue import Background, Listener, Queue, Row
from tests.sql.staging import publish_rows

TOPICS = {"on_finish": "finish", "on_failure": "failure", "on_success": "success"}


def state(queue: Queue, batch: int) -> Row:
    return queue.row("SELECT * FROM messages.batch_state WHERE id = %s", [batch])


def counts(queue: Queue, batch: int) -> tuple[int, ...]:
    """Return how many messages are live, succeeded, are dead, and were cancelled."""
    found = state(queue, batch)
    return found.live, found.succeeded, found.dead, found.cancelled


def published(queue: Queue, topic: str) -> list[Any]:
    """Return the payloads of the messages of a topic that wait."""
    return [row.payload for row in queue.rows("SELECT payload FROM messages.message WHERE topic = %s", [topic])]


def callbacks(queue: Queue) -> dict[str, int]:
    """Return how many messages of each event were published."""
    return {event: len(published(queue, event)) for event in ("finish", "failure", "success")}


def settle_all(queue: Queue, how: str = "complete") -> None:
    claimed = queue.claim()
    arguments = [] if how == "complete" else [["why"] * len(claimed)]
    assert queue.settle(how, claimed, *arguments) == []


# Callbacks


def test_when_all_have_succeeded_it_is_finished_and_publishes_in_the_transaction_of_the_last_end(queue: Queue) -> None:
    batch = queue.call("create_batch", "import", **TOPICS, metadata={"file": "a.csv"})
    queue.publish_many(3, batch_id=batch)
    queue.call("close_batch", batch)
    first, *others = queue.claim()

    queue.settle("complete", [first])
    before = callbacks(queue)
    with queue.conn.transaction(force_rollback=True):
        queue.settle("complete", others)
        queue.conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
        assert callbacks(queue) == {"finish": 1, "failure": 0, "success": 1}
    rolled_back = callbacks(queue)
    queue.settle("complete", others)

    assert before == rolled_back == {"finish": 0, "failure": 0, "success": 0}
    assert callbacks(queue) == {"finish": 1, "failure": 0, "success": 1}
    assert published(queue, "finish") == [
        {
            "batch": batch,
            "name": "import",
            "event": "finish",
            "counts": {"total": 3, "live": 0, "succeeded": 3, "dead": 0, "cancelled": 0},
            "metadata": {"file": "a.csv"},
        }
    ]
    assert state(queue, batch).state == "finished"


def test_the_first_message_that_dies_is_told_at_once_and_only_the_first(queue: Queue) -> None:
    batch = queue.call("create_batch", **TOPICS)
    queue.publish_many(3, batch_id=batch)
    first, second, third = queue.claim()

    queue.settle("complete", [first])
    queue.settle("fail", [second], ["boom"])
    told = published(queue, "failure")
    queue.settle("reject", [third], ["no"])
    queue.call("close_batch", batch)

    assert [(each["event"], each["dead_message"], each["counts"]["live"]) for each in told] == [
        ("failure", second.id, 1)
    ]
    assert callbacks(queue) == {"finish": 1, "failure": 1, "success": 0}
    assert counts(queue, batch) == (0, 1, 2, 0)


def test_a_batch_without_messages_is_finished_when_it_is_closed(queue: Queue) -> None:
    batch = queue.call("create_batch", **TOPICS)

    closed = [queue.call("close_batch", batch) for _ in range(2)]

    assert closed == [True, False]
    assert callbacks(queue) == {"finish": 1, "failure": 0, "success": 1}


def test_an_open_batch_is_not_finished_although_all_its_messages_have_ended(queue: Queue) -> None:
    batch = queue.call("create_batch", **TOPICS)
    queue.publish(batch_id=batch)

    settle_all(queue)
    before = state(queue, batch).state, callbacks(queue)
    queue.call("close_batch", batch)

    assert before == ("open", {"finish": 0, "failure": 0, "success": 0})
    assert callbacks(queue) == {"finish": 1, "failure": 0, "success": 1}


def test_a_topic_that_refuses_what_a_batch_publishes_fails_no_settle_and_the_tick_tries_again(queue: Queue) -> None:
    queue.policy("finish", accept_publishes=False)
    batch = queue.call("create_batch", **TOPICS)
    queue.publish(batch_id=batch)
    queue.call("close_batch", batch)

    settle_all(queue)
    refused = state(queue, batch).callbacks["finish"]
    queue.policy("finish", accept_publishes=True)
    ticks = [queue.call("apply_missed_batch_changes") for _ in range(2)]

    assert "does not accept publishes" in refused["error"]
    assert ticks == [1, 0]
    assert callbacks(queue) == {"finish": 1, "failure": 0, "success": 1}
    assert "error" not in state(queue, batch).callbacks["finish"]


def test_a_topic_that_refuses_keeps_no_other_topic_from_what_is_published_again(queue: Queue) -> None:
    queue.policy("closed", accept_publishes=False)
    queue.policy("finish", accept_publishes=False)
    for topic in ["closed"] * 100 + ["finish"]:
        queue.call("close_batch", queue.call("create_batch", on_finish=topic))
    queue.policy("finish", accept_publishes=True)

    for _ in range(100):
        queue.call("apply_missed_batch_changes")
        if callbacks(queue)["finish"]:
            break

    assert callbacks(queue)["finish"] == 1


# Every end counts


def released(queue: Queue, batch: int) -> None:
    settle_all(queue)


def rejected(queue: Queue, batch: int) -> None:
    settle_all(queue, "reject")


def failed(queue: Queue, batch: int) -> None:
    queue.policy(max_attempts=1)
    claimed = queue.claim()
    queue.settle("retry", claimed, ["why"])


def lock_expired(queue: Queue, batch: int) -> None:
    queue.policy(max_attempts=1)
    queue.claim(lock_duration="1s")
    queue.later("1 hour")
    queue.call("expire_locks")


def expired(queue: Queue, batch: int) -> None:
    queue.later("1 hour")
    queue.call("expire_messages")


def expired_in_a_claim(queue: Queue, batch: int) -> None:
    queue.later("1 hour")
    queue.claim()


def skipped(queue: Queue, batch: int) -> None:
    queue.call("skip", queue.ids())


def cancelled(queue: Queue, batch: int) -> None:
    queue.call("cancel", queue.ids())


def deleted(queue: Queue, batch: int) -> None:
    queue.call("delete", queue.ids())


def purged(queue: Queue, batch: int) -> None:
    queue.call("purge_topic", "t")


def superseded(queue: Queue, batch: int) -> None:
    queue.policy(key_on_retry="supersede", max_attempts=5)
    claimed = queue.claim()
    queue.publish(key="k")
    queue.settle("retry", claimed, ["why"])


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (released, (0, 1, 0, 0)),
        (rejected, (0, 0, 1, 0)),
        (failed, (0, 0, 1, 0)),
        (lock_expired, (0, 0, 1, 0)),
        (expired, (0, 0, 1, 0)),
        (expired_in_a_claim, (0, 0, 1, 0)),
        (skipped, (0, 0, 1, 0)),
        (cancelled, (0, 0, 0, 1)),
        (deleted, (0, 0, 0, 1)),
        (purged, (0, 0, 0, 1)),
        (superseded, (0, 0, 0, 1)),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_however_a_message_ends_it_counts_and_the_last_finishes(
    queue: Queue, end: Callable[[Queue, int], None], expected: tuple[int, ...]
) -> None:
    batch = queue.call("create_batch", on_finish="finish", on_success="success")
    queue.publish(batch_id=batch, key="k", expires_at=sql.SQL("now() + '30 minutes'"))
    queue.call("close_batch", batch)

    end(queue, batch)

    assert counts(queue, batch) == expected
    assert state(queue, batch).state == "finished"
    assert callbacks(queue) == {"finish": 1, "failure": 0, "success": int(expected == (0, 1, 0, 0))}


def test_a_dead_letter_counts_once_and_its_copy_not_at_all(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    batch = queue.call("create_batch", **TOPICS)
    queue.publish(batch_id=batch)
    queue.call("close_batch", batch)

    settle_all(queue, "fail")
    settled = counts(queue, batch)
    queue.settle("complete", queue.claim("t.dlq"))

    assert settled == counts(queue, batch) == (0, 0, 1, 0)


def test_a_successor_that_is_cancelled_with_its_predecessor_finishes_its_batch(queue: Queue) -> None:
    batch = queue.call("create_batch", **TOPICS)
    first = queue.publish(batch_id=batch)
    queue.send(topic="next", after=[first], after_failed="cancel", batch_id=batch)
    queue.call("close_batch", batch)

    settle_all(queue, "fail")

    assert counts(queue, batch) == (0, 0, 1, 1)
    assert callbacks(queue) == {"finish": 1, "failure": 1, "success": 0}


def test_a_retry_a_deferral_and_a_release_are_no_ends(queue: Queue) -> None:
    queue.policy(max_attempts=5)
    batch = queue.call("create_batch", **TOPICS)
    queue.publish_many(3, batch_id=batch)
    queue.call("close_batch", batch)
    first, second, third = queue.claim()

    queue.settle("retry", [first], ["why"])
    queue.settle("defer", [second], ["1 hour"])
    queue.settle("release", [third])

    assert counts(queue, batch) == (3, 0, 0, 0)


# What is added


@pytest.mark.parametrize("on_conflict", ["ignore", "replace", "append"])
def test_a_publish_that_inserts_nothing_adds_nothing(queue: Queue, on_conflict: str) -> None:
    batch, other_batch = queue.call("create_batch"), queue.call("create_batch")
    queue.send(key="k", batch_id=batch)

    outcome = queue.send(2, key="k", on_conflict=on_conflict, batch_id=other_batch).outcome

    assert outcome != "inserted"
    assert (counts(queue, batch)[0], state(queue, other_batch).total) == (1, 0)


def test_a_message_that_a_full_topic_drops_adds_nothing(queue: Queue) -> None:
    queue.policy(max_depth=1, on_full="drop")
    batch = queue.call("create_batch")

    queue.publish_many(3, batch_id=batch)

    assert state(queue, batch).total == 1


def test_copies_for_subscribers_count_in_the_batch_too(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('news', 't'), ('news', 'u')")
    batch = queue.call("create_batch", **TOPICS)

    queue.publish("news", batch_id=batch)
    queue.send(topic="news", key="k", batch_id=batch)
    queue.call("close_batch", batch)
    before = counts(queue, batch)
    queue.settle("complete", queue.claim("t", "u"))

    assert (before, counts(queue, batch)) == ((4, 2, 0, 0), (0, 6, 0, 0))
    assert callbacks(queue) == {"finish": 1, "failure": 0, "success": 1}


def test_copied_rows_count_as_inserted_ones(queue: Queue) -> None:
    batch = queue.call("create_batch", **TOPICS)

    with (
        queue.conn.cursor() as cursor,
        cursor.copy("COPY messages.message (topic, payload, batch_id) FROM STDIN") as copy,
    ):
        for n in range(300):
            copy.write_row(["t", str(n), batch if n % 3 else None])

    assert counts(queue, batch) == (200, 0, 0, 0)


def test_staged_rows_count_when_they_are_published(queue: Queue) -> None:
    batch = queue.call("create_batch")

    publish_rows(
        queue,
        {"batch_id": batch},
        {"batch_id": batch, "key": "a"},
        {"batch_id": batch, "key": "b", "on_conflict": "append"},
        {"key": "c"},
    )

    assert counts(queue, batch) == (3, 0, 0, 0)


def test_a_batch_that_does_not_accept_messages_refuses_them(queue: Queue) -> None:
    closed, gone, cancelled_one = (queue.call("create_batch") for _ in range(3))
    queue.publish(batch_id=closed, wait="1 hour")
    queue.call("close_batch", closed)
    queue.call("close_batch", gone)
    queue.publish(batch_id=cancelled_one)
    queue.claim()
    queue.call("cancel_batch", cancelled_one)

    reasons = []
    for batch in (closed, gone, cancelled_one, 999):
        for publish in (queue.publish, lambda **named: queue.send(batch_id=named["batch_id"])):
            with pytest.raises(psycopg.Error) as refused:
                publish(batch_id=batch)
            reasons.append((refused.value.sqlstate, str(refused.value.diag.message_primary)))

    assert {code for code, _ in reasons} == {"PGR09"}
    assert reasons[::2] == reasons[1::2]
    assert "none of its messages runs" in reasons[0][1]
    assert "was finished" in reasons[2][1]
    assert "there is no batch 999" in reasons[6][1]


def test_while_one_of_its_messages_runs_a_closed_batch_accepts_more(queue: Queue) -> None:
    batch = queue.call("create_batch", **TOPICS)
    queue.publish(batch_id=batch)
    queue.call("close_batch", batch)
    held = queue.claim()

    queue.publish("next", batch_id=held[0].batch_id)
    queue.settle("complete", held)
    between = callbacks(queue)
    queue.settle("complete", queue.claim("next"))

    assert (held[0].batch_id, between["finish"]) == (batch, 0)
    assert callbacks(queue) == {"finish": 1, "failure": 0, "success": 1}


def test_adding_and_ending_in_one_transaction_is_counted_once(queue: Queue) -> None:
    batch = queue.call("create_batch", **TOPICS)
    queue.publish(batch_id=batch)
    queue.call("close_batch", batch)

    with queue.conn.transaction():
        held = queue.claim()
        added = queue.publish("next", batch_id=batch)
        with queue.conn.transaction(force_rollback=True):
            queue.publish("next", batch_id=batch)
        queue.settle("complete", held)
        queue.call("cancel", [added])

    assert counts(queue, batch) == (0, 1, 0, 1)
    assert callbacks(queue) == {"finish": 1, "failure": 0, "success": 0}


# Cancel and redrive


def test_a_batch_is_cancelled_page_by_page_and_nothing_comes_into_it_any_more(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    batch = queue.call("create_batch", **TOPICS)
    ids = queue.publish_many(5, batch_id=batch)
    running = queue.claim_one()
    listener = listen("cancelled")

    did = [queue.call("cancel_batch", batch, "wrong file", 2) for _ in range(4)]

    assert did == [2, 2, 1, 0]
    assert listener.received() == [str(running.id)]
    assert counts(queue, batch) == (0, 0, 0, 5)
    assert queue.archived(ids[0]).error == "cancelled: wrong file"
    assert callbacks(queue) == {"finish": 1, "failure": 0, "success": 0}
    actions = [row.action for row in queue.rows("SELECT action FROM messages.audit ORDER BY id")]
    assert actions == ["cancel_batch", "cancel", "cancel", "cancel"]


def test_a_redrive_opens_the_question_again_and_success_is_told_when_it_comes(queue: Queue) -> None:
    batch = queue.call("create_batch", **TOPICS)
    queue.publish_many(3, batch_id=batch)
    queue.call("close_batch", batch)
    first, *others = queue.claim()
    queue.settle("complete", [first])
    queue.settle("fail", others, ["boom"] * 2)
    finished = state(queue, batch).state, callbacks(queue)

    rows = queue.rows("SELECT * FROM messages.redrive_batch(%s)", [batch])
    again = queue.rows("SELECT * FROM messages.redrive_batch(%s)", [batch])
    between = state(queue, batch).state, counts(queue, batch)
    settle_all(queue)

    assert finished == ("finished", {"finish": 1, "failure": 1, "success": 0})
    assert [(row.archived_id, row.outcome) for row in rows] == [(each.id, "redriven") for each in others]
    assert again == []
    assert between == ("closed", (2, 1, 0, 0))
    assert (state(queue, batch).state, counts(queue, batch)) == ("finished", (0, 3, 0, 0))
    assert callbacks(queue) == {"finish": 1, "failure": 1, "success": 1}


def test_a_message_that_dies_again_after_a_redrive_tells_nothing_twice(queue: Queue) -> None:
    batch = queue.call("create_batch", **TOPICS)
    queue.publish(batch_id=batch)
    queue.call("close_batch", batch)
    settle_all(queue, "fail")

    for _ in range(2):
        queue.rows("SELECT * FROM messages.redrive_batch(%s)", [batch])
        settle_all(queue, "fail")

    assert counts(queue, batch) == (0, 0, 1, 0)
    assert callbacks(queue) == {"finish": 1, "failure": 1, "success": 0}


def test_redriven_messages_keep_their_batch_by_whatever_function_they_come_back(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    batch = queue.call("create_batch")
    ids = queue.publish_many(3, batch_id=batch)
    settle_all(queue, "fail")
    copies = [row.id for row in queue.rows("SELECT id FROM messages.message WHERE topic = 't.dlq' ORDER BY id")]

    queue.rows("SELECT * FROM messages.redrive(%s)", [ids[:1]])
    queue.rows("SELECT * FROM messages.redrive_edited(%s, p_topic => 'u')", [ids[1]])
    queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [copies])

    assert counts(queue, batch) == (3, 0, 0, 0)


def test_a_replayed_message_is_in_no_batch(queue: Queue) -> None:
    batch = queue.call("create_batch")
    queue.publish(batch_id=batch)
    settle_all(queue)

    queue.rows("SELECT * FROM messages.replay('t', now() - interval '1 day', now() + interval '1 day')")

    assert counts(queue, batch) == (0, 1, 0, 0)
    assert [queue.message(each).batch_id for each in queue.ids()] == [None]


# Several sessions


def test_the_last_two_ends_at_once_are_told_once(queue: Queue, other: Queue, background: Background) -> None:
    batch = queue.call("create_batch", **TOPICS)
    # In different shards: neither waits for the other's counts.
    first = queue.publish(batch_id=batch)
    queue.conn.execute("SELECT setval('messages.message_id_seq', %s)", [first + 200])
    second = queue.publish("u", batch_id=batch)
    queue.call("close_batch", batch)
    assert first // 64 != second // 64

    with other.conn.transaction():
        other.settle("complete", other.claim("u"))
        other.conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
        ended = background.start_blocked(queue, queue.settle, "complete", queue.claim("t"))
    ended.result()
    queue.call("apply_missed_batch_changes")

    assert state(queue, batch).state == "finished"
    assert callbacks(queue) == {"finish": 1, "failure": 0, "success": 1}


def test_an_end_that_is_counted_while_the_batch_is_being_closed_finishes_it(
    queue: Queue, other: Queue, background: Background
) -> None:
    batch = queue.call("create_batch", **TOPICS)
    queue.publish(batch_id=batch)
    held = queue.claim()

    with other.conn.transaction():
        other.call("close_batch", batch)
        settling = background.start_blocked(queue, queue.settle, "complete", held)
    settling.result()
    queue.call("apply_missed_batch_changes")

    assert (state(queue, batch).state, counts(queue, batch)) == ("finished", (0, 1, 0, 0))
    assert callbacks(queue)["finish"] == 1


def test_closing_waits_for_a_publish_that_is_not_committed(queue: Queue, other: Queue, background: Background) -> None:
    batch = queue.call("create_batch", **TOPICS)

    with other.conn.transaction():
        other.publish(batch_id=batch)
        closing = background.start_blocked(queue, queue.call, "close_batch", batch)
    closing.result()

    assert (state(queue, batch).state, counts(queue, batch)) == ("closed", (1, 0, 0, 0))


def test_a_session_that_holds_the_counts_delays_no_settle_and_the_tick_counts(queue: Queue, other: Queue) -> None:
    batch = queue.call("create_batch", **TOPICS)
    queue.publish(batch_id=batch)
    queue.call("close_batch", batch)
    held = queue.claim()

    with other.conn.transaction():
        other.rows("SELECT FROM messages.batch_shard FOR UPDATE")
        lost = queue.settle("complete", held)
        uncounted = counts(queue, batch)
    ticks = [queue.call("apply_missed_batch_changes") for _ in range(2)]

    assert (lost, uncounted, ticks) == ([], (1, 0, 0, 0), [1, 0])
    assert callbacks(queue) == {"finish": 1, "failure": 0, "success": 1}


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_above_read_committed_the_tick_counts(queue: Queue, level: str) -> None:
    batch = queue.call("create_batch", **TOPICS)
    queue.conn.execute(f"SET default_transaction_isolation = '{level}'")
    queue.publish(batch_id=batch)
    settle_all(queue)
    queue.call("close_batch", batch)
    before = state(queue, batch).state
    queue.conn.execute("SET default_transaction_isolation = 'read committed'")

    queue.call("apply_missed_batch_changes")

    assert before == "closed"
    assert (state(queue, batch).state, counts(queue, batch)) == ("finished", (0, 1, 0, 0))
    assert callbacks(queue) == {"finish": 1, "failure": 0, "success": 1}


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_batch_that_is_closed_with_an_old_snapshot_waits_for_what_was_published_since(
    queue: Queue, other: Queue, level: str
) -> None:
    batch = queue.call("create_batch", **TOPICS)
    with other.conn.transaction():
        other.conn.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        other.rows("SELECT FROM messages.message")
        queue.publish(batch_id=batch)
        other.call("close_batch", batch)
    queue.call("apply_missed_batch_changes")
    before = state(queue, batch).state

    settle_all(queue)

    assert (before, state(queue, batch).state) == ("closed", "finished")
    assert callbacks(queue) == {"finish": 1, "failure": 0, "success": 1}


def test_a_batch_that_a_session_holds_keeps_no_other_from_being_counted(queue: Queue, other: Queue) -> None:
    held, free = (queue.call("create_batch") for _ in range(2))
    for batch in (held, free):
        queue.publish(batch_id=batch)
    queue.conn.execute("SET default_transaction_isolation = 'repeatable read'")
    settle_all(queue)
    queue.conn.execute("RESET default_transaction_isolation")

    with other.conn.transaction():
        other.call("close_batch", held)
        queue.call("apply_missed_batch_changes")
        counted = counts(queue, held), counts(queue, free)

    assert counted == ((1, 0, 0, 0), (0, 1, 0, 0))


def test_the_commit_of_many_publishes_reads_each_change_a_few_times(queue: Queue, other: Queue) -> None:
    batch = queue.call("create_batch")

    with queue.conn.transaction():
        for _ in range(200):
            queue.publish(batch_id=batch)

    queue.rows("SELECT pg_stat_force_next_flush()")
    reads = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'batch_change_xid'"
    assert counts(queue, batch) == (200, 0, 0, 0)
    assert 200 <= other.value(reads) < 2000


def test_several_settles_in_one_transaction_lock_the_counts_in_one_order(queue: Queue, other: Queue) -> None:
    batch = queue.call("create_batch", **TOPICS)
    first = queue.publish(batch_id=batch)
    queue.conn.execute("SELECT setval('messages.message_id_seq', %s)", [first + 200])
    for topic in ("u", "u", "t"):
        queue.publish(topic, batch_id=batch)
    low, high = queue.claim("t"), other.claim("u")

    with queue.conn.transaction(), other.conn.transaction():
        queue.settle("complete", low[1:])
        other.settle("complete", high[:1])
        queue.settle("complete", low[:1])
        other.settle("complete", high[1:])
        assert queue.value("SELECT count(*) FROM messages.batch_change") == 2

    assert counts(queue, batch) == (0, 4, 0, 0)


# What it costs others


def test_messages_without_a_batch_write_nothing_about_batches(queue: Queue) -> None:
    batch = queue.call("create_batch")
    queue.publish_many(2)
    first, second = queue.claim()

    with queue.conn.transaction():
        queue.settle("complete", [first])
        queue.settle("fail", [second], ["why"])
        written = queue.value("SELECT count(*) FROM messages.batch_change")

    assert (written, state(queue, batch).total) == (0, 0)


# Reading and forgetting


def test_the_end_is_estimated_from_what_has_ended(queue: Queue) -> None:
    queue.stop_clock("2030-01-01 00:00+00")
    batch = queue.call("create_batch")
    queue.publish_many(4, batch_id=batch)
    unknown = state(queue, batch).estimated_end
    first, second, *_ = queue.claim()

    queue.settle("complete", [first])
    queue.later("10 minutes")
    queue.settle("complete", [second])

    assert unknown is None
    assert state(queue, batch).estimated_end.isoformat()[:16] == "2030-01-01T00:20"


def test_explain_names_the_batch_of_a_message_that_waits_runs_or_has_ended(queue: Queue) -> None:
    batch = queue.call("create_batch", "import")
    message = queue.publish(batch_id=batch)

    reasons = []
    for step in (lambda: None, queue.claim, lambda: queue.call("cancel", [message])):
        step()
        reasons.append(queue.rows("SELECT * FROM messages.explain(%s)", [message])[-1])

    assert {row.code for row in reasons} == {"batch"}
    assert reasons[0].reason == f'it belongs to batch {batch} "import", which is open: 0 of 1 messages have ended'
    assert "1 of 1 messages have ended" in reasons[2].reason


def test_the_tick_forgets_old_batches_and_then_no_publish_looks_for_one(queue: Queue) -> None:
    done, empty, live = (queue.call("create_batch", **TOPICS) for _ in range(3))
    queue.publish(batch_id=done)
    queue.publish("later", batch_id=live)
    settle_all(queue)
    queue.call("close_batch", done)

    kept = queue.call("prune_batches")
    queue.later("400 days")
    pruned = queue.call("prune_batches")
    left = [row.id for row in queue.rows("SELECT id FROM messages.batch")]
    queue.settle("complete", queue.claim("later"))
    queue.later("400 days")
    queue.call("prune_batches")

    assert (kept, pruned, left) == (0, 2, [live])
    assert empty not in left
    for table in ("batch", "batch_shard", "batch_callback"):
        assert queue.value(f"SELECT count(*) FROM messages.{table}") == 0
    assert queue.value("SELECT last_value FROM messages.batch_flag") == 1


def test_a_tick_with_an_old_snapshot_forgets_no_batch_that_it_does_not_see(queue: Queue, other: Queue) -> None:
    queue.call("create_batch")
    queue.conn.execute("DELETE FROM messages.batch")

    with other.conn.transaction():
        other.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.rows("SELECT FROM messages.message")
        queue.call("create_batch")
        other.call("prune_batches")

    assert queue.value("SELECT last_value FROM messages.batch_flag") == 2


def test_a_message_whose_batch_is_forgotten_ends_and_is_redriven_as_any_other(queue: Queue) -> None:
    batch = queue.call("create_batch")
    message = queue.publish(batch_id=batch)
    queue.conn.execute("DELETE FROM messages.batch; DELETE FROM messages.batch_shard")

    settle_all(queue, "fail")
    queue.rows("SELECT * FROM messages.redrive(%s)", [[message]])
    settle_all(queue)

    assert queue.value("SELECT count(*) FROM messages.batch_change") == 0
    assert queue.value("SELECT count(*) FROM messages.batch_shard") == 0
