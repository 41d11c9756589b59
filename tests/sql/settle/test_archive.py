"""messages.archive: the one way into the archive."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.queue import Background, Queue

# messages.archive: the terminal move. What the archive keeps, and the fence of every settle.

# Every function that ends a message, with its arguments for one message.
TERMINAL: dict[str, tuple[Any, ...]] = {"complete": (), "reject": (["why"],), "fail": (["why"],), "retry": (["why"],)}
terminal = pytest.mark.parametrize("settle", TERMINAL)

CARRIED_OVER = [
    "id",
    "timeout",
    "backoff",
    "retention",
    "batch_id",
    "topic",
    "channel",
    "key",
    "priority",
    "payload",
    "body",
    "headers",
    "state",
    "progress",
    "created_at",
    "available_at",
    "expires_at",
    "attempts",
    "runs",
    "max_attempts",
    "claim_id",
    "locked_at",
    "history",
    "origin_id",
    "original_topic",
    "dlq_moved_at",
    "redriven_from",
    "redrives",
]


def same_result(one: str, another: str) -> bool:
    """Whether two settles end the last attempt of a message with the same result: a retry is a failure then."""
    return one == another or {one, another} == {"fail", "retry"}


def exactly_one_place(queue: Queue, message_id: int) -> bool:
    live = queue.message(message_id) is not None
    archived: int = queue.value("SELECT count(*) FROM messages.message_archive WHERE id = %s", [message_id])
    return live + archived == 1


def test_the_archive_keeps_all_columns_of_the_message(queue: Queue) -> None:
    published = queue.publish(
        channel="c", key="k", priority=3, payload={"n": 1}, headers={"h": 1}, max_attempts=1, wait="-1 s"
    )
    claimed = queue.claim()
    live = queue.message(published)

    queue.settle("fail", claimed, ["boom"])

    archived = queue.archived(published)
    assert {c: getattr(archived, c) for c in CARRIED_OVER} == {c: getattr(live, c) for c in CARRIED_OVER}
    assert (archived.handled_by, archived.error) == ("w", "boom")


def test_every_column_of_a_message_except_its_lock_is_a_column_of_the_archive(queue: Queue) -> None:
    columns = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
    live, archive = (
        {r.attname for r in queue.rows(columns, [f"messages.{t}"])} for t in ("message", "message_archive")
    )

    assert live - archive == {"locked_by", "lock_expires_at", "prefetched", "content_bytes", "debounce_limit"}
    assert set(CARRIED_OVER) == live & archive


def test_a_bytes_message_is_archived_as_bytes(queue: Queue) -> None:
    published = queue.publish(body=b"\x00\x01")

    queue.settle("complete", queue.claim())

    assert (queue.archived(published).body, queue.archived(published).payload) == (b"\x00\x01", None)


def test_the_archive_records_the_transaction_that_wrote_the_row(queue: Queue) -> None:
    published = queue.publish()
    claimed = queue.claim()

    with queue.conn.transaction():
        queue.settle("complete", claimed)
        own = queue.value("SELECT pg_current_xact_id()")

    assert queue.archived(published).archive_xid == own


def test_archive_success_no_payload_keeps_the_row_without_its_content(queue: Queue) -> None:
    queue.policy(archive_success="no_payload")
    payload, body = queue.publish(payload={"n": 1}, headers={"h": 1}), queue.publish(body=b"x")

    queue.settle("complete", queue.claim(), [Jsonb(1), Jsonb(2)])

    for message_id, output in ((payload, 1), (body, 2)):
        archived = queue.archived(message_id)
        assert (archived.payload, archived.body, archived.output) == (None, None, output)
    assert queue.archived(payload).headers == {"h": 1}


def test_archive_success_none_deletes(queue: Queue) -> None:
    queue.policy(archive_success="none")
    published = queue.publish()

    claimed = queue.claim()

    assert queue.settle("complete", claimed) == []
    assert (queue.message(published), queue.archived(published)) == (None, None)
    assert queue.settle("complete", claimed) == [published]


@pytest.mark.parametrize(("settle", "keep"), [("reject", "none"), ("fail", "no_payload"), ("retry", "none")])
def test_archive_success_does_not_apply_to_dead_messages(queue: Queue, settle: str, keep: str) -> None:
    queue.policy(archive_success=keep)
    published = queue.publish(payload={"n": 1})

    queue.settle(settle, queue.claim(), ["boom"])

    assert queue.archived(published).payload == {"n": 1}


def test_a_topics_archive_success_wins_over_the_default(queue: Queue) -> None:
    queue.policy("*", archive_success="none")
    queue.policy("t", archive_success="full")
    kept, deleted = queue.publish("t"), queue.publish("u")

    queue.settle("complete", queue.claim("t", "u"))

    assert (queue.archived(kept) is None, queue.archived(deleted) is None) == (False, True)


@pytest.mark.parametrize("character", ["x", "é", "🦆"])
def test_an_error_is_cut_to_8_kilobytes_whatever_its_characters(queue: Queue, character: str) -> None:
    published = queue.publish()

    queue.settle("fail", queue.claim(), [f"begin{character * 100_000}end"])

    kept = queue.archived(published).error
    assert 2000 <= len(kept.encode()) <= 8192
    assert kept.startswith(f"begin{character}")
    assert kept.endswith(f"{character}end")
    assert set(kept) == {character, *"begin\n.end"}


@terminal
def test_a_stale_claim_changes_nothing_and_is_reported_as_lost(queue: Queue, settle: str) -> None:
    published = queue.publish(max_attempts=9)
    stale = queue.claim(lock_duration="1 s")
    queue.later("1 hour")
    queue.call("expire_locks")
    queue.later("1 hour")
    (current,) = queue.claim(worker="another")
    before = queue.message(published)

    lost = queue.settle(settle, stale, *TERMINAL[settle])

    assert lost == [published]
    assert queue.message(published) == before
    assert before.claim_id == current.claim_id


@terminal
def test_a_claim_is_stale_even_if_the_same_worker_has_claimed_the_message_again(queue: Queue, settle: str) -> None:
    published = queue.publish()
    stale = queue.claim(worker="same")
    queue.settle("release", stale)
    current = queue.claim(worker="same")

    assert queue.settle(settle, stale, *TERMINAL[settle]) == [published]
    assert queue.settle("complete", current) == []
    assert queue.archived(published).result == "success"


@terminal
def test_a_message_without_a_lock_cannot_be_settled(queue: Queue, settle: str) -> None:
    published = queue.publish()
    stale = queue.claim()
    queue.settle("release", stale)

    assert queue.settle(settle, stale, *TERMINAL[settle]) == [published]
    assert queue.message(published).claim_id is None


@terminal
def test_without_a_claim_id_nothing_is_settled(queue: Queue, settle: str) -> None:
    """A caller that lost its claim_id must not end a waiting message."""
    published = queue.publish()

    for claim_ids in ([None], [], None, [0]):
        assert queue.call(settle, [published], claim_ids, *TERMINAL[settle]) == [published]
    assert queue.message(published).claim_id is None


@terminal
def test_a_settle_whose_answer_was_lost_may_be_repeated(queue: Queue, settle: str) -> None:
    published = queue.publish()
    claimed = queue.claim()
    queue.settle(settle, claimed, *TERMINAL[settle])
    before = queue.archived(published)

    assert queue.settle(settle, claimed, *TERMINAL[settle]) == []
    assert queue.archived(published) == before


@pytest.mark.parametrize(("ended", "settle"), [pair for pair in product(TERMINAL, TERMINAL) if not same_result(*pair)])
def test_a_settle_with_another_result_than_the_first_is_reported_as_lost(queue: Queue, ended: str, settle: str) -> None:
    """A worker that believes it completed a message must learn that the message was rejected."""
    published = queue.publish()
    claimed = queue.claim()
    queue.settle(ended, claimed, *TERMINAL[ended])

    assert queue.settle(settle, claimed, *TERMINAL[settle]) == [published]


@terminal
def test_a_settle_after_the_lock_expired_finally_is_reported_as_lost(queue: Queue, settle: str) -> None:
    published = queue.publish()
    claimed = queue.claim()
    queue.later("1 hour")
    queue.call("expire_locks")

    assert queue.settle(settle, claimed, *TERMINAL[settle]) == [published]
    assert queue.archived(published).result == "lock_expired"


@terminal
def test_a_batch_settles_what_it_holds_and_reports_what_it_lost(queue: Queue, settle: str) -> None:
    mine, stolen, gone = queue.publish_many(3)
    claimed = queue.claim()
    queue.settle("release", [claimed[1]])
    queue.claim(worker="another")
    queue.call("cancel", [gone])

    lost = queue.settle(settle, claimed, *([a[0]] * 3 for a in TERMINAL[settle]))

    assert sorted(lost) == sorted([stolen, gone])
    assert queue.message(mine) is None
    assert queue.message(stolen).locked_by == "another"
    assert queue.archived(gone).result == "cancelled"


@terminal
def test_no_ids_lose_nothing_and_an_unknown_one_is_reported_as_lost(queue: Queue, settle: str) -> None:
    arguments = len(TERMINAL[settle])
    assert queue.call(settle, [], [], *[[]] * arguments) == []
    assert queue.call(settle, None, None, *[None] * arguments) == []
    assert queue.call(settle, [4711], [1], *TERMINAL[settle]) == [4711]


@terminal
def test_an_id_that_is_given_twice_ends_the_message_once(queue: Queue, settle: str) -> None:
    published = queue.publish()
    (claimed,) = queue.claim()

    lost = queue.settle(settle, [claimed, claimed], *([a[0]] * 2 for a in TERMINAL[settle]))

    assert lost == []
    assert exactly_one_place(queue, published)


@pytest.mark.parametrize(
    ("winner", "loser"), [("complete", "reject"), ("reject", "fail"), ("fail", "retry"), ("retry", "complete")]
)
def test_of_two_concurrent_settles_the_second_waits_and_is_reported_as_lost(
    queue: Queue, other: Queue, background: Background, winner: str, loser: str
) -> None:
    published = queue.publish()
    claimed = queue.claim()

    with queue.conn.transaction():
        queue.settle(winner, claimed, *TERMINAL[winner])
        second = background.start_blocked(other, other.settle, loser, claimed, *TERMINAL[loser])

    assert second.result(timeout=60) == ([] if same_result(winner, loser) else [published])
    assert exactly_one_place(queue, published)


def test_if_the_first_of_two_settles_is_rolled_back_the_second_succeeds(
    queue: Queue, other: Queue, background: Background
) -> None:
    published = queue.publish()
    claimed = queue.claim()

    with queue.conn.transaction(force_rollback=True):
        queue.settle("fail", claimed, ["boom"])
        second = background.start_blocked(other, other.settle, "complete", claimed)

    assert second.result(timeout=60) == []
    assert queue.archived(published).result == "success"


def test_concurrent_settles_and_cancels_in_any_order_never_deadlock(
    queue: Queue, other: Queue, third: Queue, background: Background
) -> None:
    first, last = queue.publish_many(2)
    claimed = queue.claim()

    with queue.conn.transaction():
        queue.conn.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [first])
        cancel = background.start_blocked(other, other.call, "cancel", [first, last])
        settle = background.start_blocked(third, third.settle, "complete", claimed[::-1])

    assert sorted(cancel.result(timeout=60) + settle.result(timeout=60)) in ([first, first, last, last], [first, last])
    assert exactly_one_place(queue, first)
    assert exactly_one_place(queue, last)


def test_the_archive_accepts_only_known_results(queue: Queue) -> None:
    with pytest.raises(errors.CheckViolation, match="result"):
        queue.conn.execute(
            """
            INSERT INTO messages.message_archive (id, topic, priority, created_at, available_at, attempts, result)
            VALUES (1, 't', 5, now(), now(), 1, 'done')
            """
        )


def test_a_message_with_many_attempts_is_archived_with_its_history(queue: Queue) -> None:
    queue.policy(backoff={"kind": "none"})
    published = queue.publish(max_attempts=3)
    for error in ("one", "two"):
        queue.settle("retry", queue.claim(), [error], [timedelta(0)])

    queue.settle("complete", queue.claim())

    archived = queue.archived(published)
    assert [(h["attempt"], h["outcome"], h["error"]) for h in archived.history] == [
        (1, "failed", "one"),
        (2, "failed", "two"),
    ]
    assert (archived.attempts, archived.result) == (3, "success")


# messages.apply_end_policies: counters and keys of messages that end, with every function that ends them.


@pytest.mark.parametrize("end", ["complete", "fail", "reject", "cancel", "expire"])
def test_every_function_that_ends_a_message_makes_room_and_frees_its_key(queue: Queue, end: str) -> None:
    queue.policy("t", max_depth=5, key_ttl="1 ms")
    queue.publish(key="k")
    queue.publish(key="l")
    (claimed,) = queue.claim(limit=1, lock_duration="0 s" if end == "expire" else None)

    match end:
        case "cancel":
            queue.call("cancel", [claimed.id])
        case "expire":
            queue.call("expire_locks")
        case "complete":
            queue.settle("complete", [claimed])
        case _:
            queue.settle(end, [claimed], ["boom"])

    assert queue.depth() == 1
    assert queue.send(1, key="k", on_conflict="ignore").outcome == "inserted" or end == "complete"
    assert queue.value("SELECT count(*) FROM messages.held_key WHERE key = 'l' AND free_at IS NULL") == 1


def test_without_a_policy_it_is_not_called(own_queue: Queue) -> None:
    own_queue.conn.execute("SET track_functions = 'all'")
    with own_queue.conn.transaction():
        own_queue.publish_many(2)
        own_queue.settle("complete", own_queue.claim(limit=1))
        own_queue.policy("t", max_depth=5)
        own_queue.settle("complete", own_queue.claim(limit=1))
        calls = own_queue.rows("SELECT calls FROM pg_stat_xact_user_functions WHERE funcname = 'apply_end_policies'")

    assert calls == [(1,)]


# messages.append_attempt: the history of a message with one more ended attempt.

WITH_ATTEMPT = "SELECT messages.append_attempt(%s, %s, 'w', '2026-01-01', '2026-01-02', %s, %s)"


def append_attempt(
    queue: Queue, history: Any, attempt: int = 1, outcome: str = "failed", error: str | None = None
) -> Any:
    return queue.value(WITH_ATTEMPT, [None if history is None else Jsonb(history), attempt, outcome, error])


def test_an_error_is_cut_to_1000_characters(queue: Queue) -> None:
    assert len(append_attempt(queue, None, error="é" * 5000)[0]["error"]) == 1000


def test_of_a_long_traceback_the_exception_is_kept(queue: Queue) -> None:
    frames = "".join(f'  File "/srv/shop/handlers.py", line {line}, in send\n    raise_for()\n' for line in range(40))
    error = f"Traceback (most recent call last):\n{frames}ConnectionError: the relay refused"

    kept = append_attempt(queue, None, error=error)[0]["error"]

    assert kept.endswith("ConnectionError: the relay refused")
    assert len(kept) == 1000
