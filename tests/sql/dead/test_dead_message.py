"""What the death of a message sends, logs and leaves, and how dead letters return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import errors, sql

from tests.sql.deaths import copy_of, die, outcomes
from tests.sql.queue import Background, Listener, Queue

# dead_message: What archive does with dead messages: they log a warning, write an alert, and send the notification
# dead_message.

ALERTS = (
    "SELECT topic, result, count, first_message_id, last_message_id, sample_error, delivered_at "
    "FROM messages.alert ORDER BY id"
)


@pytest.fixture
def listener(listen: Callable[..., Listener]) -> Listener:
    return listen("dead_message")


@pytest.fixture
def notices(queue: Queue) -> list[tuple[str | None, ...]]:
    """What the server reports to this session, in its order: severity and text first, then all the rest."""
    notices: list[tuple[str | None, ...]] = []
    queue.conn.add_notice_handler(
        lambda d: notices.append((d.severity, d.message_primary, d.message_detail, d.message_hint, d.context))
    )
    return notices


def test_a_dead_message_sends_a_notification_with_its_id(queue: Queue, listener: Listener) -> None:
    dead = queue.publish()

    queue.settle("fail", queue.claim(), ["boom"])

    assert listener.received() == [str(dead)]


def test_dead_messages_of_one_kind_send_one_notification_and_have_a_warning_each(
    queue: Queue, listener: Listener, notices: list[tuple[str | None, ...]]
) -> None:
    dead = queue.publish_many(3)

    queue.settle("fail", queue.claim(), ["boom 1", "boom 2", "boom 3"])

    assert listener.received() == ["t 3"]
    assert [text for _, text, *_ in notices] == [f"dead message {d} of topic t: failed" for d in dead]


def test_one_alert_is_written_for_each_topic_result_and_fingerprint_of_a_statement(
    queue: Queue, listener: Listener
) -> None:
    a1, a2, a3 = queue.publish_many(3, "a")
    b1 = queue.publish("b")

    queue.settle(
        "fail", queue.claim("a", "b"), ["disk 1 is full", "disk 2 is full", "no route to host", "disk 3 is full"]
    )

    assert [tuple(alert) for alert in sorted(queue.rows(ALERTS), key=lambda a: a.first_message_id)] == [
        ("a", "failed", 2, a1, a2, "disk 1 is full", None),
        ("a", "failed", 1, a3, a3, "no route to host", None),
        ("b", "failed", 1, b1, b1, "disk 3 is full", None),
    ]
    assert sorted(listener.received()) == sorted(["a 2", str(a3), str(b1)])


def test_a_warning_in_the_log_has_id_topic_and_result_and_never_the_payload(
    queue: Queue, notices: list[tuple[str | None, ...]]
) -> None:
    dead = queue.publish(payload={"iban": "DE02120300000000202051"}, headers={"token": "s3cret"})

    queue.settle("reject", queue.claim(), ["bad iban DE02120300000000202051"])

    (warning,) = notices
    assert warning[:2] == ("WARNING", f"dead message {dead} of topic t: rejected")
    assert "DE02" not in str(warning)


def test_every_result_but_success_and_cancelled_is_dead(queue: Queue, listener: Listener) -> None:
    rejected, failed, expired = (queue.publish(t) for t in ("rejected", "failed", "expired"))
    queue.settle("reject", queue.claim("rejected"), ["x"])
    queue.settle("fail", queue.claim("failed"), ["x"])
    queue.claim("expired")
    queue.later("1 hour")
    queue.call("expire_locks")

    assert listener.received() == [str(rejected), str(failed), str(expired)]
    assert [alert.result for alert in queue.rows(ALERTS)] == ["rejected", "failed", "lock_expired"]


WAYS = {
    "fail": "SELECT messages.fail({held}, ARRAY['boom'])",
    "reject": "SELECT messages.reject({held}, ARRAY['boom'])",
    "retry": "SELECT messages.retry({held}, ARRAY['boom'])",
    "expire_locks": "UPDATE messages.message SET lock_expires_at = now() - "
    "interval '1 s'; SELECT messages.expire_locks()",
    "tick": "UPDATE messages.message SET lock_expires_at = now() - interval '1 s'; SELECT messages.tick('hand')",
    "claim": "UPDATE messages.message SET attempts = 5, max_attempts = 5; SELECT messages.release({held});"
    "UPDATE messages.message SET attempts = 5; SELECT messages.claim('w', ARRAY['t'], 1)",
    "expire_messages": "SELECT messages.release({held}); UPDATE messages.message "
    "SET expires_at = '2026-01-01'; SELECT messages.expire_messages()",
    "skip": "SELECT messages.release({held}); SELECT messages.skip(ARRAY(SELECT id FROM messages.message))",
}
HELD = "ARRAY(SELECT id FROM messages.message), ARRAY(SELECT claim_id FROM messages.message)"


@pytest.mark.parametrize("way", WAYS)
def test_a_dead_message_is_a_few_lines_in_the_log_whatever_ends_it(
    queue: Queue, notices: list[tuple[str | None, ...]], way: str
) -> None:
    """The text of each enclosing statement is logged with it, and those of the functions of the queue are long."""
    dead = queue.publish()
    queue.claim()

    queue.conn.execute(WAYS[way].format(held=HELD).encode())

    (warning,) = notices
    assert (warning[1] or "").startswith(f"dead message {dead} of topic t: ")
    context = warning[4] or ""
    assert (len(context) < 800, context.count("\n") < 10) == (True, True), context


def test_what_is_not_dead_writes_no_alert_and_no_warning_and_sends_no_notification(
    queue: Queue, listener: Listener, notices: list[tuple[str | None, ...]]
) -> None:
    queue.publish()
    queue.settle("complete", queue.claim())
    queue.call("cancel", [queue.publish()])
    queue.publish("retried", max_attempts=2)
    queue.settle("retry", queue.claim("retried"), ["boom"])

    assert (listener.received(), queue.rows(ALERTS), notices) == ([], [], [])


def test_a_settle_that_is_rolled_back_writes_no_alert_and_sends_no_notification(
    queue: Queue, listener: Listener
) -> None:
    queue.publish()
    claimed = queue.claim()

    with queue.conn.transaction(force_rollback=True):
        queue.settle("fail", claimed, ["boom"])

    assert (listener.received(), queue.rows(ALERTS)) == ([], [])


def test_an_error_of_8_kilobytes_is_shortened_in_the_alert(queue: Queue) -> None:
    queue.publish()

    queue.settle("fail", queue.claim(), ["x" * 8000])

    assert len(queue.row(ALERTS).sample_error) == 1000


# The live copy of topics with dead_letter


def test_with_dead_letter_a_live_copy_is_in_the_dlq_of_its_topic(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    content: dict[str, Any] = {"payload": {"n": 1}, "headers": {"h": 1}, "channel": "c", "priority": 2}
    died = queue.publish(**content, key="k", max_attempts=3)
    queue.settle("fail", queue.claim(), ["boom"])

    copy = copy_of(queue, died)

    assert {column: getattr(copy, column) for column in content} == content
    assert (copy.topic, copy.original_topic, copy.origin_id, copy.key) == ("t.dlq", "t", died, None)
    assert (copy.attempts, copy.max_attempts, copy.history, copy.expires_at) == (0, 1, None, None)
    assert copy.dlq_moved_at is not None
    assert queue.archived(died).result == "failed"


def test_checkpoint_and_bytes_of_a_rejected_message_are_copied_too(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = queue.publish(body=b"\x00\xff", state=sql.SQL("'[7]'::jsonb"))
    queue.settle("reject", queue.claim(), ["boom"])

    copy = copy_of(queue, died)

    assert (copy.body, copy.payload, copy.state) == (b"\x00\xff", None, [7])


def test_an_expired_message_leaves_a_copy_that_does_not_expire(queue: Queue) -> None:
    queue.policy(dead_letter=True, ttl="1 minute")
    died = queue.publish()
    queue.later("1 hour")

    assert queue.call("expire_messages") == 1

    assert queue.archived(died).result == "expired"
    assert copy_of(queue, died).expires_at is None
    queue.later("1 day")
    assert queue.call("expire_messages") == 0


def test_success_and_cancelled_leave_no_copy_and_no_message_without_dead_letter(queue: Queue) -> None:
    die(queue)
    queue.policy(dead_letter=True)
    queue.publish()
    queue.settle("complete", queue.claim())
    queue.call("cancel", [queue.publish()])

    assert queue.ids() == []


def test_a_copy_has_one_attempt_and_leaves_no_further_copy(queue: Queue) -> None:
    queue.policy("*", dead_letter=True, max_attempts=5)
    died = die(queue, max_attempts=1)
    (working,) = queue.claim("t.dlq")

    queue.settle("retry", [working], ["worse"])

    assert queue.ids() == []
    assert (queue.archived(working.id).result, queue.archived(working.id).origin_id) == ("failed", died)


def test_many_messages_that_die_in_one_statement_have_a_copy_each(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = queue.publish_many(50)

    queue.settle("fail", queue.claim(), ["boom"] * 50)

    assert [row.origin_id for row in queue.rows("SELECT origin_id FROM messages.message ORDER BY id")] == died


def test_a_copy_notifies_the_workers_of_the_dlq(queue: Queue, listen: Callable[..., Listener]) -> None:
    queue.policy(dead_letter=True)
    queue.arm(topics=["t.dlq"])
    listener = listen("new_message")

    died = die(queue)

    assert listener.received() == [str(copy_of(queue, died).id)]


@pytest.mark.parametrize(
    "limits",
    [
        {"max_depth": 1},
        {"max_depth": 1, "on_full": "drop"},
        {"publish_rate": 0.001},
        {"ttl": "1 s"},
        {"max_payload_bytes": 1},
    ],
    ids=str,
)
def test_no_limit_of_the_dlq_prevents_a_settle_or_a_copy(queue: Queue, limits: dict[str, Any]) -> None:
    queue.policy(dead_letter=True)
    queue.policy("t.dlq", **limits)

    died = [die(queue, payload={"n": n}) for n in range(3)]

    assert [copy_of(queue, each).expires_at for each in died] == [None] * 3


def test_by_default_every_topic_has_a_dlq_unless_it_is_switched_off_or_the_name_is_too_long(queue: Queue) -> None:
    queue.policy("*", dead_letter=True)
    queue.policy("off", dead_letter=False)

    fits, off, long = die(queue, "x" * 196), die(queue, "off"), die(queue, "x" * 197)

    assert [copy_of(queue, each) is not None for each in (fits, off, long)] == [True, False, False]


@pytest.mark.parametrize("topic", ["x" * 197, "orders.dlq"])
def test_dead_letter_is_refused_for_a_topic_that_cannot_have_a_dlq(queue: Queue, topic: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=f"dead_letter of topic {topic} is true") as caught:
        queue.policy(topic, dead_letter=True)

    assert caught.value.diag.message_hint.startswith("leave it out: ")


# messages.cancel_dlq_copies: a dead letter is not run once its original was redriven.


def test_copies_of_other_messages_stay(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died, other = die(queue), die(queue)

    queue.rows("SELECT * FROM messages.redrive(%s)", [[died]])

    assert copy_of(queue, died) is None
    assert copy_of(queue, other).topic == "t.dlq"


def test_a_copy_that_is_being_claimed_is_not_waited_for(queue: Queue, other: Queue, background: Background) -> None:
    queue.policy(dead_letter=True)
    died = die(queue)

    with other.conn.transaction():
        (claimed,) = other.claim("t.dlq")
        redriven = background.start(queue.rows, "SELECT * FROM messages.redrive(%s)", [[died]])
        assert [row.outcome for row in redriven.result(timeout=60)] == ["redriven"]

    assert queue.message(claimed.id).claim_id == claimed.claim_id


def test_an_original_and_its_dead_copy_redriven_in_one_call_leave_one_message(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = die(queue)
    claimed = queue.claim("t.dlq")
    queue.settle("fail", claimed, ["worse"])

    queue.rows("SELECT * FROM messages.redrive(%s)", [[died, claimed[0].id]])

    assert [row.topic for row in queue.rows("SELECT topic FROM messages.message")] == ["t"]


def test_a_copy_that_its_worker_released_after_the_redrive_is_cancelled_by_the_next_call(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = die(queue)
    working = queue.claim("t.dlq")
    queue.rows("SELECT * FROM messages.redrive(%s)", [[died]])
    queue.settle("release", working)

    (requeued,) = queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [[working[0].id]])

    assert (requeued.outcome, requeued.archived_id) == ("redriven_before", died)
    assert queue.archived(working[0].id).result == "cancelled"
    assert queue.ids() == [requeued.message_id]


# messages.requeue_dead_letters: a waiting copy in a .dlq topic returns to its original topic.


@pytest.fixture
def died(queue: Queue) -> int:
    queue.policy(dead_letter=True)
    return die(queue, payload={"n": 1}, key="k", channel="c", max_attempts=1, headers={"h": 1})


def test_it_returns_to_its_topic_with_all_its_columns(queue: Queue, died: int) -> None:
    copy = copy_of(queue, died)

    (row,) = queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [[copy.id]])

    assert (row.copy_id, row.archived_id, row.outcome) == (copy.id, died, "redriven")
    (new,) = queue.rows("SELECT * FROM messages.message")
    assert (new.id, new.topic, new.key, new.channel) == (row.message_id, "t", "k", "c")
    assert (new.payload, new.headers) == ({"n": 1}, {"h": 1})
    assert (new.redriven_from, new.redrives, new.attempts, new.max_attempts) == (died, 1, 0, 1)
    assert (new.origin_id, new.original_topic, new.dlq_moved_at) == (None, None, None)
    assert queue.archived(copy.id).result == "cancelled"
    assert queue.archived(copy.id).error == f"its original {died} was put back as message {row.message_id}"


def test_requeue_and_redrive_share_one_log(queue: Queue, died: int) -> None:
    copy = copy_of(queue, died)
    queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [[copy.id]])

    assert outcomes(queue, "redrive", [died]) == {died: "redriven_before"}
    assert len(queue.ids()) == 1


def test_of_a_concurrent_requeue_and_redrive_only_the_first_succeeds(
    queue: Queue, other: Queue, background: Background, died: int
) -> None:
    copy = copy_of(queue, died)

    with queue.conn.transaction():
        queue.rows("SELECT * FROM messages.redrive(%s)", [[died]])
        second = background.start_blocked(other, outcomes, other, "requeue_dead_letters", [copy.id])

    assert second.result(timeout=60) == {copy.id: "not_waiting"}
    assert len(queue.ids()) == 1


def test_a_running_or_ended_copy_and_an_ordinary_message_are_not_moved(queue: Queue, died: int) -> None:
    (working,) = queue.claim("t.dlq")
    ordinary = queue.publish()

    assert outcomes(queue, "requeue_dead_letters", [working.id, ordinary, died]) == dict.fromkeys(
        [died, working.id, ordinary], "not_waiting"
    )
    assert queue.ids() == [working.id, ordinary]


def test_a_copy_whose_key_is_taken_stays_in_the_dlq(queue: Queue, died: int) -> None:
    copy = copy_of(queue, died)
    queue.publish(key="k")

    assert outcomes(queue, "requeue_dead_letters", [copy.id]) == {copy.id: "superseded"}
    assert copy_of(queue, died) is not None


def test_a_copy_that_outlived_its_archive_row_is_requeued_once_too(queue: Queue, died: int) -> None:
    copy = copy_of(queue, died)
    queue.conn.execute("DELETE FROM messages.message_archive")

    (row,) = queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [[copy.id]])

    assert row.outcome == "redriven"
    assert queue.message(row.message_id).payload == {"n": 1}
    assert outcomes(queue, "requeue_dead_letters", [copy.id]) == {copy.id: "not_waiting"}


def test_a_requeue_counts_towards_max_redrives(queue: Queue, died: int) -> None:
    queue.policy(max_redrives=1)
    queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [[copy_of(queue, died).id]])
    again = queue.claim("t")
    queue.settle("fail", again, ["boom"])
    copy = copy_of(queue, again[0].id)

    assert outcomes(queue, "requeue_dead_letters", [copy.id]) == {copy.id: "too_often"}
    assert copy_of(queue, again[0].id) is not None
    assert (
        queue.rows("SELECT outcome FROM messages.requeue_dead_letters(%s, p_force => true)", [[copy.id]])[0].outcome
        == "redriven"
    )


@pytest.mark.parametrize("ids", [[], None])
def test_no_ids_move_nothing(queue: Queue, ids: Any) -> None:
    assert queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [ids]) == []
