"""messages.signal and messages.signal_key: an event continues the message that waits for it, once."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.queue import Background, Queue, Row


def signal(queue: Queue, message_id: int | None, name: str | None = "ok", payload: Any = None, **named: Any) -> Any:
    given = None if payload is None else Jsonb(payload)
    return queue.call("signal", message_id, name, given, **named)


def wait(queue: Queue, claimed: Row, name: str = "ok", number: int = 1, timeout: str | None = "7 days") -> list[int]:
    return queue.settle("wait_for_event", [claimed], [name], [number], [timeout])


def got(queue: Queue, claimed: Row) -> list[tuple[str, str | None, bool]]:
    rows = queue.rows("SELECT * FROM messages.load_events(%s, %s)", [claimed.id, claimed.claim_id])
    assert rows, "the lock was lost"
    return [tuple(row) for row in rows if row.name is not None]


def test_a_message_that_waits_is_ready_again_with_its_event_when_that_is_signalled(queue: Queue) -> None:
    published = queue.publish()
    first = queue.claim_one()
    assert wait(queue, first) == []
    assert queue.claim() == []

    assert signal(queue, published, payload={"by": "anna"}) == published

    again = queue.claim_one()
    assert (again.id, again.attempt, again.runs) == (published, 1, 2)
    assert got(queue, again) == [("ok", '{"by": "anna"}', False)]


def test_a_signal_before_the_wait_is_kept_and_the_message_comes_back_at_once(queue: Queue) -> None:
    published = queue.publish()
    signal(queue, published, payload=1)
    first = queue.claim_one()

    wait(queue, first)

    again = queue.claim_one()
    assert got(queue, again) == [("ok", "1", False)]


def test_every_later_attempt_gets_the_same_events_in_their_order(queue: Queue) -> None:
    queue.policy(max_attempts=5)
    published = queue.publish()
    for payload in (1, 2):
        signal(queue, published, payload=payload)
    signal(queue, published, "other")
    first = queue.claim_one()
    kept = got(queue, first)

    queue.settle("retry", [first], ["boom"], ["0 s"])

    assert got(queue, queue.claim_one()) == kept
    assert sorted(kept) == [("ok", "1", False), ("ok", "2", False), ("other", "null", False)]
    assert [each for each in kept if each[0] == "ok"] == [("ok", "1", False), ("ok", "2", False)]


def test_a_signal_for_another_event_is_kept_and_wakes_nothing(queue: Queue) -> None:
    published = queue.publish()
    wait(queue, queue.claim_one())

    assert signal(queue, published, "other") == published

    assert queue.claim() == []


def test_a_message_that_has_ended_gets_nothing(queue: Queue) -> None:
    published = queue.publish()
    queue.settle("complete", queue.claim())

    assert signal(queue, published) is None
    assert signal(queue, published + 1) is None
    assert queue.value("SELECT count(*) FROM messages.step") == 0
    assert queue.value("SELECT count(*) FROM messages.mutex WHERE kind = 'event'") == 0


def test_with_a_number_a_signal_counts_once_however_often_it_is_repeated(queue: Queue) -> None:
    published = queue.publish()
    for payload in (1, 2, 3):
        assert signal(queue, published, payload=payload, number=1) == published
    signal(queue, published, payload=4, number=2)

    assert got(queue, queue.claim_one()) == [("ok", "1", False), ("ok", "4", False)]


def test_the_wait_returns_the_attempt_and_holds_no_place_in_a_limit(queue: Queue) -> None:
    queue.policy(max_concurrency=1, max_attempts=1)
    first, second = queue.publish(), queue.publish()
    wait(queue, queue.claim_one())

    assert queue.message(first).attempts == 0
    assert queue.message(first).claim_id is None
    assert queue.claim_one().id == second


def test_a_wait_without_a_timeout_has_no_end(queue: Queue) -> None:
    published = queue.publish()
    wait(queue, queue.claim_one(), timeout=None)

    queue.later("400 days")

    assert queue.claim() == []
    signal(queue, published)
    assert queue.claim_one().id == published


# Time-outs.


def test_when_its_time_is_over_the_message_gets_the_time_out_once_and_in_each_attempt(queue: Queue) -> None:
    queue.policy(max_attempts=5)
    published = queue.publish()
    wait(queue, queue.claim_one(), timeout="1 hour")
    queue.later("2 hours")
    again = queue.claim_one()

    assert got(queue, again) == [("ok", None, True)]

    # A later signal is for the next wait.
    signal(queue, published, payload=1)
    queue.settle("retry", [again], ["boom"], ["0 s"])
    assert got(queue, queue.claim_one()) == [("ok", None, True), ("ok", "1", False)]


def test_a_wait_that_begins_again_keeps_its_end(queue: Queue) -> None:
    published = queue.publish()
    wait(queue, queue.claim_one(), timeout="1 hour")
    queue.later("50 minutes")
    queue.call("retry_now", [published])
    wait(queue, queue.claim_one(), timeout="1 hour")

    queue.later("20 minutes")

    assert got(queue, queue.claim_one()) == [("ok", None, True)]


def test_the_next_wait_for_the_same_name_has_its_own_time(queue: Queue) -> None:
    published = queue.publish()
    wait(queue, queue.claim_one(), timeout="1 hour")
    queue.later("50 minutes")
    signal(queue, published)
    wait(queue, queue.claim_one(), number=2, timeout="1 hour")

    queue.later("50 minutes")
    assert queue.claim() == []
    queue.later("20 minutes")

    assert [each[2] for each in got(queue, queue.claim_one())] == [False, True]


def test_a_signal_that_comes_before_the_handler_knows_of_the_time_out_counts(queue: Queue) -> None:
    published = queue.publish()
    wait(queue, queue.claim_one(), timeout="1 hour")
    queue.later("2 hours")

    signal(queue, published, payload=1)

    assert got(queue, queue.claim_one()) == [("ok", "1", False)]


# Fences.


def test_a_worker_that_lost_its_lock_neither_waits_nor_reads(queue: Queue) -> None:
    published = queue.publish()
    lost = queue.claim_one()
    queue.settle("release", [lost])
    held = queue.claim_one()

    assert wait(queue, lost, "other") == [published]
    assert queue.rows("SELECT * FROM messages.load_events(%s, %s)", [lost.id, lost.claim_id]) == []
    assert queue.message(published).claim_id == held.claim_id
    assert queue.value("SELECT count(*) FROM messages.step") == 0


def test_with_strict_lock_an_expired_lock_is_lost(queue: Queue) -> None:
    queue.policy(lock_duration="1 s", strict_lock=True)
    published = queue.publish()
    claimed = queue.claim_one()
    queue.later("2 s")

    assert wait(queue, claimed) == [published]
    assert queue.rows("SELECT * FROM messages.load_events(%s, %s)", [claimed.id, claimed.claim_id]) == []


# Two sessions.


def test_a_wait_during_an_open_signal_does_not_wait_for_it_and_loses_nothing(queue: Queue, other: Queue) -> None:
    published = queue.publish()
    claimed = queue.claim_one()
    with other.conn.transaction():
        signal(other, published, payload=1)

        assert wait(queue, claimed) == []
        assert queue.message(published).claim_id is None

    queue.later("2 s")
    assert got(queue, queue.claim_one()) == [("ok", "1", False)]


def test_no_settle_of_a_running_message_waits_for_an_open_signal(queue: Queue, other: Queue) -> None:
    published = queue.publish()
    claimed = queue.claim_one()
    with other.conn.transaction():
        signal(other, published)
        queue.conn.execute("SET lock_timeout = '10s'")

        assert queue.call("heartbeat", [claimed.id], [claimed.claim_id]) == []
        assert queue.settle("complete", [claimed]) == []

    assert queue.archived(published).result == "success"


def test_a_signal_during_an_open_wait_comes_after_it_and_wakes_the_message(
    queue: Queue, other: Queue, background: Background
) -> None:
    published = queue.publish()
    claimed = queue.claim_one()
    with other.conn.transaction():
        wait(other, claimed)
        signalled = background.start_blocked(queue, signal, queue, published, payload=1)
    assert signalled.result(timeout=60) == published

    assert got(queue, queue.claim_one()) == [("ok", "1", False)]


def test_two_signals_at_once_are_two(queue: Queue, other: Queue, background: Background) -> None:
    published = queue.publish()
    with other.conn.transaction():
        signal(other, published, payload=1)
        second = background.start_blocked(queue, signal, queue, published, payload=2)
    assert second.result(timeout=60) == published

    assert got(queue, queue.claim_one()) == [("ok", "1", False), ("ok", "2", False)]


def test_a_time_out_during_an_open_signal_is_left_to_that(queue: Queue, other: Queue) -> None:
    published = queue.publish()
    wait(queue, queue.claim_one(), timeout="1 hour")
    with other.conn.transaction():
        other.later("2 hours")
        queue.later("2 hours")
        claimed = queue.claim_one()
        signal(other, published, payload=1)

        assert got(queue, claimed) == []
        assert wait(queue, claimed, timeout="1 hour") == []

    queue.later("2 s")
    assert got(queue, queue.claim_one()) == [("ok", "1", False)]


def test_a_signal_that_is_rolled_back_never_was(queue: Queue) -> None:
    published = queue.publish()
    wait(queue, queue.claim_one())
    with queue.conn.transaction(force_rollback=True):
        signal(queue, published)

    assert queue.claim() == []


def test_a_second_signal_gives_up_where_the_first_stays_open(queue: Queue, other: Queue) -> None:
    published = queue.publish()
    with other.conn.transaction():
        signal(other, published)
        queue.conn.execute("SET lock_timeout = '50ms'")

        with pytest.raises(errors.LockNotAvailable, match=f"another transaction has signalled message {published}"):
            signal(queue, published)


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_above_read_committed_signals_and_waits_are_refused(queue: Queue, level: psycopg.IsolationLevel) -> None:
    published = queue.publish()
    claimed = queue.claim_one()
    queue.conn.isolation_level = level

    with pytest.raises(errors.ActiveSqlTransaction, match="signal needs READ COMMITTED"), queue.conn.transaction():
        signal(queue, published)
    with pytest.raises(errors.ActiveSqlTransaction, match="event needs READ COMMITTED"), queue.conn.transaction():
        wait(queue, claimed)


# What else may happen to a message that waits.


def test_a_message_that_waits_expires_with_its_ttl(queue: Queue) -> None:
    published = queue.publish(expires_at=queue.value("SELECT messages.now() + interval '1 hour'"))
    wait(queue, queue.claim_one())

    queue.later("2 hours")
    queue.call("expire_messages")

    assert queue.archived(published).result == "expired"


def test_a_paused_topic_keeps_the_message_until_it_is_resumed(queue: Queue) -> None:
    published = queue.publish()
    wait(queue, queue.claim_one())
    queue.call("pause", "t")
    signal(queue, published)
    assert queue.claim() == []

    queue.call("resume", "t")

    assert queue.claim_one().id == published


def test_its_ordered_channel_waits_with_it(queue: Queue) -> None:
    queue.policy(ordered=True)
    first, second = queue.publish(channel="c"), queue.publish(channel="c")
    wait(queue, queue.claim_one())
    assert queue.claim() == []
    assert "waiting_for_event" in codes(queue, first)
    assert "ordered" in codes(queue, second)

    signal(queue, first)

    claimed = queue.claim_one()
    assert claimed.id == first
    queue.settle("complete", [claimed])
    assert queue.claim_one().id == second


def test_a_replaced_payload_begins_at_once_without_the_events_of_the_old_one(queue: Queue) -> None:
    published = queue.send(1, key="k").id
    signal(queue, published)
    wait(queue, queue.claim_one(), "later")

    assert queue.send(2, key="k", on_conflict="replace").id == published

    assert queue.value("SELECT count(*) FROM messages.step") == 0
    assert [row.id for row in queue.claim()] == [published]


def test_a_debounced_payload_ends_a_wait_after_its_own_time(queue: Queue) -> None:
    published = queue.send(1, key="k", debounce="0").id
    wait(queue, queue.claim_one(), timeout=None)

    queue.send(2, key="k", debounce="1 hour")

    assert queue.claim() == []
    queue.later("61 minutes")
    assert [row.id for row in queue.claim()] == [published]


def test_a_redrive_takes_its_signals_along_and_begins_a_wait_that_timed_out_again(queue: Queue) -> None:
    published = queue.publish()
    signal(queue, published, payload=1)
    wait(queue, queue.claim_one(), "second", timeout="1 hour")
    queue.later("2 hours")
    claimed = queue.claim_one()
    assert got(queue, claimed)[-1] == ("second", None, True)
    queue.settle("reject", [claimed], ["it timed out"])

    queue.rows("SELECT * FROM messages.redrive(ARRAY[%s::bigint])", [published])

    redriven = queue.claim_one()
    assert got(queue, redriven) == [("ok", "1", False)]
    wait(queue, redriven, "second", timeout="1 hour")
    assert queue.claim() == []


def test_a_success_leaves_nothing(queue: Queue) -> None:
    published = queue.publish()
    signal(queue, published)
    wait(queue, queue.claim_one())
    queue.settle("complete", queue.claim())
    queue.call("prune_mutexes", 100)

    assert queue.value("SELECT count(*) FROM messages.step") == 0
    assert queue.value("SELECT count(*) FROM messages.mutex WHERE kind = 'event'") == 0


def test_the_mutex_of_a_message_stays_while_it_is_live(queue: Queue) -> None:
    signal(queue, queue.publish())

    queue.call("prune_mutexes", 100)

    assert queue.value("SELECT count(*) FROM messages.mutex WHERE kind = 'event'") == 1


def test_explain_names_the_event_and_until_when(queue: Queue) -> None:
    published = queue.publish()
    wait(queue, queue.claim_one(), timeout="7 days")

    (reason,) = queue.rows("SELECT * FROM messages.explain(%s) WHERE code = 'waiting_for_event'", [published])

    assert reason.reason.startswith('its handler waits for the event "ok", until ')
    assert f"`pgrouse message signal {published} ok`" in reason.reason
    assert reason.detail["event"] == "ok"
    signal(queue, published)
    assert "waiting_for_event" not in codes(queue, published)


def test_explain_says_that_a_wait_has_no_limit(queue: Queue) -> None:
    published = queue.publish()
    wait(queue, queue.claim_one(), timeout=None)

    (reason,) = queue.rows("SELECT * FROM messages.explain(%s) WHERE code = 'waiting_for_event'", [published])

    assert "without a time limit" in reason.reason
    assert reason.detail == {"event": "ok", "until": None}


def codes(queue: Queue, message_id: int) -> list[str]:
    return [row.code for row in queue.rows("SELECT code FROM messages.explain(%s)", [message_id])]


def test_it_is_waiting_in_lists_and_counted_among_the_delayed(queue: Queue) -> None:
    published = queue.publish()
    wait(queue, queue.claim_one())

    assert queue.value("SELECT state FROM messages.state WHERE id = %s", [published]) == "waiting"
    for states, listed in ((["waiting"], [published]), (["delayed"], []), (["ready", "delayed", "retrying"], [])):
        rows = queue.rows("SELECT id, state FROM messages.find_messages(p_states => %s) WHERE id IS NOT NULL", [states])
        assert [row.id for row in rows if row.state == "waiting"] == listed
    assert queue.value("SELECT delayed FROM messages.stats() WHERE topic = 't'") == 1


def test_a_signal_is_in_the_audit_log(queue: Queue) -> None:
    published = queue.publish()
    queue.conn.execute("SET messages.actor = 'anna'")

    signal(queue, published)

    row = queue.row("SELECT actor, topic, target, detail FROM messages.audit WHERE action = 'signal'")
    assert (row.actor, row.topic, row.target, row.detail["event"]) == ("anna", "t", str(published), "ok")


# By key.


def by_key(queue: Queue, key: str | None, name: str = "ok", topic: str | None = "t") -> Any:
    return queue.call("signal_key", topic, key, name, Jsonb(1))


def test_a_key_finds_a_message_in_each_state(queue: Queue) -> None:
    queue.policy(max_attempts=5)
    published = queue.publish(key="k")
    assert by_key(queue, "k") == published  # ready
    claimed = queue.claim_one()
    assert by_key(queue, "k") == published  # running
    queue.settle("retry", [claimed], ["boom"], ["0 s"])
    assert by_key(queue, "k") == published  # retrying
    wait(queue, queue.claim_one(), "other")
    assert by_key(queue, "k") == published  # waiting

    assert by_key(queue, "j") is None
    assert by_key(queue, "k", topic="u") is None
    signal(queue, published, "other")
    queue.settle("complete", queue.claim())
    assert by_key(queue, "k") is None


def test_of_several_messages_with_a_key_the_one_that_waits_for_the_event_gets_it_then_the_oldest(queue: Queue) -> None:
    queue.policy(key_on_retry="keep")
    oldest = queue.publish(key="k")
    running = queue.claim_one()
    newer = queue.publish(key="k")
    assert by_key(queue, "k") == oldest
    wait(queue, queue.claim_one(), "other")

    assert by_key(queue, "k", "other") == newer
    assert by_key(queue, "k") == oldest
    assert running.id == oldest


# Limits and errors.


def test_an_event_has_a_short_printable_name(queue: Queue) -> None:
    published = queue.publish()
    claimed = queue.claim()

    for name in (None, "", "a\nb", "n" * 181):
        with pytest.raises(errors.InvalidParameterValue, match="name of an event is"):
            signal(queue, published, name)
        with pytest.raises(errors.InvalidParameterValue, match="name of an event is"):
            queue.settle("wait_for_event", claimed, [name], [1])


@pytest.mark.parametrize("name", ["a:1", "wait", "%", "ä:ö" * 60, "1"])
def test_any_printable_name_is_a_name_of_its_own(queue: Queue, name: str) -> None:
    published = queue.publish()
    wait(queue, queue.claim_one(), name)
    for other_name in ("a", "1:a", "event"):
        signal(queue, published, other_name)
    assert queue.claim() == []

    signal(queue, published, name, payload=name)

    assert (name, queue.value("SELECT to_jsonb(%s::text)::text", [name]), False) in got(queue, queue.claim_one())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((None, "ok"), errors.NullValueNotAllowed),
        ((1, "ok", Jsonb("x" * 1_048_576)), errors.InvalidParameterValue),
        ((1, "ok", None, 0), errors.InvalidParameterValue),
    ],
)
def test_what_is_no_signal_is_refused(queue: Queue, arguments: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        queue.call("signal", *arguments)


def test_a_message_takes_a_bounded_number_and_size_of_signals(queue: Queue) -> None:
    many, large = queue.publish(), queue.publish()
    queue.conn.execute(
        "INSERT INTO messages.step (message_id, name, result, attempt) "
        "SELECT %s, 'event:' || n || ':ok', '{\"payload\": 1}', 1 FROM generate_series(1, 1000) AS n",
        [many],
    )
    for _ in range(16):
        signal(queue, large, payload="x" * 1_000_000)

    with pytest.raises(errors.InvalidParameterValue, match="has 1000 signals"):
        signal(queue, many)
    claimed = queue.claim(limit=1)[0]
    assert claimed.id == many
    assert queue.call("save_step", many, claimed.claim_id, "of the handler", Jsonb(1)) is True
    with pytest.raises(errors.InvalidParameterValue, match="bytes of signals"):
        signal(queue, large, payload="x" * 1_000_000)


def test_an_encrypted_message_takes_signals_without_payloads_only(queue: Queue) -> None:
    published = queue.publish(headers=Jsonb({"pgrouse-encrypted-by": "key-1"}))

    with pytest.raises(errors.InvalidParameterValue, match="is encrypted"):
        signal(queue, published, payload={"secret": 1})
    assert signal(queue, published) == published


def test_no_step_takes_the_name_of_a_signal_and_no_handler_gets_one_as_a_step(queue: Queue) -> None:
    published = queue.publish()
    signal(queue, published)
    claimed = queue.claim_one()

    with pytest.raises(errors.InvalidParameterValue, match="begin with event"):
        queue.call("save_step", claimed.id, claimed.claim_id, "event:2:ok", Jsonb(1))
    assert [tuple(row) for row in queue.rows("SELECT * FROM messages.load_steps(%s, %s)", claimed[:2])] == [
        (None, None)
    ]


def test_a_timeout_of_any_length_is_taken(queue: Queue) -> None:
    for timeout in ("-1 days", "0", "1000000 years"):
        published = queue.publish()
        assert wait(queue, queue.claim_one(), timeout=timeout) == []
        assert queue.message(published).available_at is not None
        queue.call("cancel", [published])


# Signed URLs.


def sign(queue: Queue, message_id: int, name: str = "ok", hold: str = "1 day", number: int = 1) -> tuple[int, str]:
    until = queue.value("SELECT messages.now() + %s::interval", [hold])
    return int(until.timestamp()), queue.call("sign_signal", message_id, name, until, number)


def check(queue: Queue, message_id: int, name: str, until: int, number: int, signature: str | None) -> str:
    return queue.call("check_signal", message_id, name, until, number, signature)


def test_a_signature_is_right_for_what_was_signed_and_for_nothing_else(queue: Queue) -> None:
    published, other_message = queue.publish(), queue.publish()
    until, signature = sign(queue, published)

    assert check(queue, published, "ok", until, 1, signature) == "valid"
    for wrong in [
        (other_message, "ok", until, 1, signature),
        (published, "no", until, 1, signature),
        (published, "ok", until + 1, 1, signature),
        (published, "ok", until, 2, signature),
        (published, "ok", until, 1, signature[:-1]),
        (published, "ok", until, 1, signature.upper()),
        (published, "ok", until, 1, ""),
        (published, "ok", until, 1, None),
        (published, None, until, 1, signature),
    ]:
        assert check(queue, *wrong) == "invalid"


def test_a_signed_url_holds_until_its_time_and_for_one_signal(queue: Queue) -> None:
    published = queue.publish()
    until, signature = sign(queue, published, hold="1 hour")
    signal(queue, published)
    assert check(queue, published, "ok", until, 1, signature) == "used"

    until, signature = sign(queue, published, hold="1 hour", number=2)
    assert check(queue, published, "ok", until, 2, signature) == "valid"
    queue.later("61 minutes")
    assert check(queue, published, "ok", until, 2, signature) == "over"

    until, signature = sign(queue, published, number=2)
    queue.call("cancel", [published])
    assert check(queue, published, "ok", until, 2, signature) == "ended"


def test_the_signature_is_an_hmac_of_sha_256(queue: Queue) -> None:
    """The two blocks of the key are those of the standard, so any library would compute the same."""
    published = queue.publish()
    until, signature = sign(queue, published)
    (key,) = queue.rows("SELECT inner_key, outer_key FROM messages.signing_key")
    secret = bytes(each ^ 0x36 for each in key.inner_key)

    assert bytes(each ^ 0x5C for each in secret) == key.outer_key
    assert secret[32:] == bytes(32)
    text = f"signal:{published}:{until}:1:ok".encode()
    assert signature == hmac.new(secret[:32], text, hashlib.sha256).hexdigest()


@pytest.mark.parametrize("until", ["messages.now() + interval '367 days'", "'infinity'", "'-infinity'"])
def test_a_signed_url_holds_a_year_at_most(queue: Queue, until: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="a signed URL is to hold until"):
        queue.value(f"SELECT messages.sign_signal(1, 'ok', {until})")


def test_the_key_is_read_by_no_role(queue: Queue) -> None:
    roles = queue.rows(
        "SELECT rolname FROM pg_roles WHERE rolname ~ '^messages_' AND rolname <> 'messages_owner' "
        "AND (has_table_privilege(oid, 'messages.signing_key', 'SELECT') "
        "OR has_any_column_privilege(oid, 'messages.signing_key', 'SELECT'))"
    )

    assert roles == []
