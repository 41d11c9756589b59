"""messages.explain: why a message is not running, each reason in its order."""

from __future__ import annotations

import json
from datetime import UTC

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.queue import Queue, Row

# explain: explain: the one answer to "why is my message not running?".

EXPLAIN = "SELECT * FROM messages.explain(%s)"


def test_it_follows_a_message_from_its_publish_to_its_end(queue: Queue) -> None:
    queue.call("register_worker", "w", "h", 7, "1", ["t"], 10)
    queue.policy(max_attempts=2)
    message = queue.publish()
    seen = [queue.row(EXPLAIN, [message]).code]
    claimed = queue.claim()
    seen.append(queue.row(EXPLAIN, [message]).code)
    queue.settle("retry", claimed, ["boom"], ["1 s"])
    seen.append(queue.row(EXPLAIN, [message]).code)
    queue.later("2 s")
    queue.settle("complete", queue.claim())
    seen.append(queue.row(EXPLAIN, [message]).code)

    assert seen == ["ready", "running", "retrying", "success"]


@pytest.mark.parametrize("state", ["waiting", "running", "ended"])
def test_the_contents_are_not_shown(queue: Queue, state: str) -> None:
    secret = {"secret": "s3cret"}
    message = queue.publish(payload=secret, headers=secret)
    queue.conn.execute("UPDATE messages.message SET state = %s", [json.dumps(secret)])
    if state != "waiting":
        claimed = queue.claim()
    if state == "ended":
        queue.settle("complete", claimed)

    shown = queue.value("SELECT jsonb_agg(e)::text FROM messages.explain(%s) AS e", [message])

    assert "s3cret" not in shown


def test_an_id_is_needed(queue: Queue) -> None:
    with pytest.raises(errors.NullValueNotAllowed, match="needs the id of a message"):
        queue.rows(EXPLAIN, [None])


def test_it_only_reads(queue: Queue) -> None:
    message = queue.publish()

    with queue.conn.transaction():
        queue.conn.execute("SET TRANSACTION READ ONLY")
        assert queue.rows(EXPLAIN, [message])


@pytest.mark.newest
def test_its_cost_is_bounded_however_long_the_queue_is(own_queue: Queue) -> None:
    own_queue.publish_many(30_000, channel="c")
    own_queue.publish_many(30_000)
    in_channel, outside = own_queue.publish(channel="c"), own_queue.publish()
    own_queue.conn.execute("VACUUM ANALYZE messages.message")

    assert own_queue.buffers(EXPLAIN, [in_channel]) < 3000
    assert own_queue.buffers(EXPLAIN, [outside]) < 3000


@pytest.mark.parametrize("role", ["operator", "analyst"])
def test_operators_and_analysts_may_call_it(queue: Queue, other: Queue, role: str) -> None:
    message = queue.publish()
    other.conn.execute(f"SET ROLE messages_{role}".encode())

    assert other.rows(EXPLAIN, [message])[0].code == "unhandled"


# explain_missing: explain_missing: an id that is neither live nor archived.


def test_an_invalid_id_or_one_above_the_highest_was_never_published(queue: Queue) -> None:
    highest = queue.publish()
    reason = f"it was never published: the highest id so far is {highest}"

    for impossible in (highest + 1, 0, -1):
        row = queue.row(EXPLAIN, [impossible])

        assert (row.code, row.reason) == ("never_published", reason)


def test_an_id_below_the_highest_was_deleted_or_rolled_back(queue: Queue) -> None:
    queue.policy(archive_success="none")
    message = queue.publish()
    queue.settle("complete", queue.claim())

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.code == "gone"
    assert "archive_success = none" in row.reason


def test_a_redriven_message_that_left_the_archive_still_names_its_successor(queue: Queue) -> None:
    message = queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])
    (back,) = queue.rows("SELECT * FROM messages.redrive(%s)", [[message]])
    queue.conn.execute("DELETE FROM messages.message_archive")

    rows = queue.rows("SELECT * FROM messages.explain(%s)", [message])

    assert [row.code for row in rows] == ["redriven", "gone"]
    assert rows[0].detail["message_id"] == back.message_id


# explain_ended: explain_ended: how a message ended, and which messages came from it.


def test_a_success_shows_when_and_which_worker(queue: Queue) -> None:
    message = queue.publish()
    queue.settle("complete", queue.claim(worker="w1"))
    queue.later("3 minutes")

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert (row.code, row.reason) == ("success", "it succeeded 3m ago after 1 attempt by w1")


def test_a_dead_message_shows_its_error(queue: Queue) -> None:
    message = queue.publish()
    queue.settle("fail", queue.claim(worker="w1"), ["Traceback\nValueError: boom"])
    queue.later("3 minutes")

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.code == "failed"
    assert row.reason == "it is dead: it failed 3m ago after 1 attempt by w1: ValueError: boom"
    assert row.detail["error_fingerprint"] == queue.archived(message).error_fingerprint


def test_each_result_has_its_own_text(queue: Queue) -> None:
    rejected, expired, cancelled = (queue.publish(topic) for topic in ("rejected", "expired", "cancelled"))
    queue.settle("reject", queue.claim("rejected", worker="w1"), ["bad: x"])
    queue.claim("expired", lock_duration="0 s")
    queue.later("1 s")
    queue.call("expire_locks")
    queue.call("cancel", [cancelled], "not wanted")

    explained = {
        each: queue.row("SELECT * FROM messages.explain(%s)", [each]) for each in (rejected, expired, cancelled)
    }

    assert explained[rejected].reason.startswith("it is dead: w1 rejected it")
    assert explained[rejected].reason.endswith(" ago: bad: x")
    assert explained[expired].code == "lock_expired"
    assert explained[expired].reason.startswith("it is dead: its lock expired")
    assert explained[cancelled].reason.endswith(": cancelled: not wanted")


def test_the_successor_of_a_redriven_message_comes_first(queue: Queue) -> None:
    message = queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])
    (back,) = queue.rows("SELECT * FROM messages.redrive(%s)", [[message]])

    rows = queue.rows("SELECT * FROM messages.explain(%s)", [message])

    assert [row.code for row in rows] == ["redriven", "failed"]
    assert rows[0].detail["message_id"] == back.message_id
    assert f"as message {back.message_id}" in rows[0].reason


def test_a_fanned_out_message_shows_its_copies(queue: Queue) -> None:
    message = queue.publish()
    queue.call(
        "archive", [message], [None], "success", [None], [Jsonb({"fanned_out": {"a": 7, "b": None}})], None, True
    )

    rows = queue.rows("SELECT * FROM messages.explain(%s)", [message])

    assert rows[0].code == "fanned_out"
    assert rows[0].reason.endswith("to a as message 7, b (no message was published there)")
    assert rows[0].detail == {"a": 7, "b": None}


def test_a_dead_message_names_its_copy_in_the_dlq(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    message = queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])
    (copy,) = queue.rows("SELECT id FROM messages.message WHERE topic = 't.dlq'")

    rows = queue.rows("SELECT * FROM messages.explain(%s)", [message])

    assert [row.code for row in rows] == ["dead_letter", "failed"]
    assert rows[0].reason == f"its copy in topic t.dlq is message {copy.id}"


def test_a_copy_that_has_ended_is_not_named(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    message = queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])
    (copy,) = queue.rows("SELECT id FROM messages.message WHERE topic = 't.dlq'")
    queue.call("redrive", [message])

    rows = queue.rows("SELECT * FROM messages.explain(%s)", [message])

    assert [row.code for row in rows] == ["redriven", "dead_letter", "failed"]
    assert rows[1].reason == f"its copy in topic t.dlq was message {copy.id}, which has ended"


def test_a_superseded_message_shows_so(queue: Queue) -> None:
    queue.policy(max_attempts=3)
    message = queue.publish(key="k")
    claimed = queue.claim()
    queue.publish(key="k")
    queue.settle("retry", claimed, ["boom"])

    (row,) = queue.rows("SELECT * FROM messages.explain(%s)", [message])

    assert row.code == "superseded"
    assert "a newer message with the same key is ready" in row.reason


# explain_running: explain_running: a message that is locked.


def test_it_shows_worker_duration_and_attempt(queue: Queue) -> None:
    queue.policy(max_attempts=3)
    message = queue.publish()
    queue.claim(worker="w1/0")
    queue.later("10 s")

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.code == "running"
    assert row.reason == (
        "locked by w1/0 for 10s, attempt 1 of 3; the lock expires in 20s unless a heartbeat extends it"
    )
    assert (row.detail["worker"], row.detail["attempt"], row.detail["max_attempts"]) == ("w1/0", 1, 3)


def test_it_shows_the_progress_and_nothing_else_that_the_handler_wrote(queue: Queue) -> None:
    message = queue.publish()
    queue.claim()
    queue.conn.execute(
        "UPDATE messages.message SET progress = %s", [Jsonb({"done": 3, "total": 10, "unit": "rows", "secret": 1})]
    )

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.reason.endswith("; progress 3 of 10 rows")
    assert row.detail["progress"] == {"done": 3, "total": 10, "unit": "rows"}


def test_an_invalid_progress_is_not_shown(queue: Queue) -> None:
    message = queue.publish()
    queue.claim()
    queue.conn.execute(
        "UPDATE messages.message SET progress = %s",
        [Jsonb({"done": {"secret": 1}, "total": "s3cret", "unit": "x" * 51})],
    )

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.detail["progress"] is None
    assert row.reason.endswith("unless a heartbeat extends it")


def test_a_message_that_was_claimed_ahead_waits_for_a_slot(queue: Queue) -> None:
    first, second = queue.publish_many(2)
    queue.claim(worker="w1/0", start=1)

    assert queue.row("SELECT * FROM messages.explain(%s)", [first]).code == "running"
    row = queue.row("SELECT * FROM messages.explain(%s)", [second])
    assert row.code == "prefetched"
    assert row.reason.startswith("prefetched by w1/0 ")


def test_an_expired_lock_waits_for_the_tick_and_shows_when_the_last_one_ran(queue: Queue) -> None:
    message = queue.publish()
    queue.claim(worker="w1")
    queue.later("45 s")

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.code == "lock_ran_out"
    assert row.reason.startswith("the lock of w1 expired 15s ago (attempt 1 of 1): the next tick ends that attempt")
    assert row.reason.endswith("never: start a daemon, or install the jobs of pg_cron")
    queue.rows("SELECT * FROM messages.tick('hand')")  # ends it
    message = queue.publish()
    queue.claim(worker="w1")
    queue.later("45 s")
    assert "ago" in queue.row("SELECT * FROM messages.explain(%s)", [message]).reason.rpartition("last one was")[2]


def test_a_worker_without_a_sign_of_life_is_named(queue: Queue) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)
    message = queue.publish()
    queue.claim(worker="w1/0")
    assert [row.code for row in queue.rows("SELECT * FROM messages.explain(%s)", [message])] == ["running"]

    queue.conn.execute("UPDATE messages.worker SET seen_at = seen_at - interval '40 s'")

    rows = queue.rows("SELECT * FROM messages.explain(%s)", [message])
    assert [row.code for row in rows] == ["running", "worker_silent"]
    assert rows[1].detail["host"] == "h"


# messages.explain_locked: a message that waits because an open transaction has locked it, its topic or its channel.


def locked(queue: Queue, message_id: int) -> list[Row]:
    return [row for row in queue.rows("SELECT * FROM messages.explain(%s)", [message_id]) if row.code == "locked"]


def test_an_open_publisher_that_replaces_the_message_is_named(queue: Queue, other: Queue) -> None:
    waiting = queue.publish("t", key="k")
    with other.conn.transaction(force_rollback=True):
        other.send(2, key="k", on_conflict="replace")
        at_once = locked(queue, waiting)
        queue.later("10 s")
        (row,) = locked(queue, waiting)

    pid = other.conn.info.backend_pid
    assert at_once == []
    assert row.reason.startswith(
        f"process {pid} (postgres, idle in transaction) has locked message {waiting}: claims pass it over, for "
    )
    assert row.reason.endswith(f"end it by: SELECT pg_terminate_backend({pid});")
    assert (row.detail["kind"], row.detail["pid"]) == ("message", pid)
    assert locked(queue, waiting) == []


def test_an_open_claim_of_its_topic_is_named(queue: Queue, other: Queue) -> None:
    queue.policy("t", max_concurrency=100)
    queue.publish("t")
    queue.claim("t", limit=1)
    queue.publish("t")
    waiting = queue.publish("t")
    beside = queue.publish("beside")
    with other.conn.transaction(force_rollback=True):
        other.claim("t", limit=1)
        queue.later("10 s")
        found = [row.detail["kind"] for row in locked(queue, waiting)]
        assert locked(queue, beside) == []

    assert found == ["topic"]


def test_an_open_claim_of_its_channel_is_named(queue: Queue, other: Queue) -> None:
    queue.policy("t", channel_concurrency=100)
    queue.publish("t", channel="c")
    queue.claim("t")
    queue.publish("t", channel="c")
    waiting = queue.publish("t", channel="c")
    with other.conn.transaction(force_rollback=True):
        other.claim("t", limit=1)
        elsewhere = queue.publish("t", channel="d")
        queue.later("10 s")
        found = [row.detail["kind"] for row in locked(queue, waiting)]

        assert "channel" not in {row.detail["kind"] for row in locked(queue, elsewhere)}
    assert "channel" in found


# messages.explain_blocked: which predecessors a message waits for, and the fix if one will not end by itself.


def why(queue: Queue, message_id: int) -> list[Row]:
    return queue.rows("SELECT * FROM messages.explain(%s)", [message_id])


def test_predecessors_that_have_not_ended_are_named(queue: Queue) -> None:
    first, second = queue.publish_many(2)
    last = queue.send(after=[first, second]).id

    (reason, *_) = why(queue, last)

    assert reason.code == "after"
    assert f"for messages {first}, {second}, which have not ended" in reason.reason
    assert reason.detail["waits_for"] == [first, second]
    assert "delayed" not in [row.code for row in why(queue, last)]


def test_a_dead_predecessor_comes_first_with_its_fix(queue: Queue) -> None:
    dead, live = queue.publish("dead"), queue.publish("live")
    last = queue.send(after=[live, dead]).id
    queue.settle("fail", queue.claim("dead"), ["boom"])

    (first, second, *_) = why(queue, last)

    assert (first.code, second.code) == ("after_dead", "after")
    assert f"message {dead}, which is dead (failed)" in first.reason
    assert f"`pgrouse redrive {dead}`" in first.reason
    assert f"`pgrouse message unblock {last}`" in first.reason


def test_a_cancelled_predecessor_cannot_be_redriven(queue: Queue) -> None:
    first = queue.publish()
    last = queue.send(after=[first]).id
    queue.call("cancel", [first])

    (reason, *_) = why(queue, last)

    assert "was cancelled" in reason.reason
    assert "redrive" not in reason.reason


def test_of_many_predecessors_ten_are_named_and_the_others_counted(queue: Queue) -> None:
    last = queue.send(after=queue.publish_many(25)).id

    assert "and 15 more, which have not ended" in why(queue, last)[0].reason


def test_a_delayed_message_is_only_delayed(queue: Queue) -> None:
    assert why(queue, queue.publish(wait="1 hour"))[0].code == "delayed"


@pytest.mark.parametrize("max_delay", [None, "2 hours"])
def test_a_debounced_message_says_until_when_and_how_far_that_may_move(queue: Queue, max_delay: str | None) -> None:
    message = queue.send(key="k", debounce="1 hour", max_delay=max_delay).id
    row = queue.message(message)

    found = why(queue, message)[0]

    assert found.code == "debounced"
    assert f"debounced until {row.available_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, due in" in found.reason
    limit = f", at most to {row.debounce_limit.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    assert (limit in found.reason) == (max_delay is not None)
    assert "debounce_limit" in found.detail


def test_a_debounced_message_that_its_handler_deferred_is_deferred(queue: Queue) -> None:
    message = queue.send(key="k", debounce="0").id
    queue.later("1 minute")
    queue.settle("defer", [queue.claim_one()], ["1 hour"])

    assert why(queue, message)[0].code == "deferred"


# explain_waiting: explain_waiting: the reasons why an unlocked message waits, and ready if there is none.


def codes(queue: Queue, message: int) -> list[str]:
    return [row.code for row in queue.rows("SELECT * FROM messages.explain(%s)", [message])]


def test_a_message_that_is_next_has_no_reason(queue: Queue) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)
    message = queue.publish()

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.code == "ready"
    assert row.reason.endswith(": the next claim takes it")


def test_all_reasons_are_shown_the_longest_lasting_first(queue: Queue) -> None:
    queue.publish()
    message = queue.publish()
    queue.call("pause", "t")

    assert codes(queue, message) == ["paused", "unhandled", "behind"]


def test_a_message_that_is_due_later_has_no_queue_position(queue: Queue) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)
    queue.publish()
    message = queue.publish(wait="1 hour")

    assert codes(queue, message) == ["delayed"]


# explain_stopped: explain_stopped: a pause, an open breaker, no worker.


def rows(queue: Queue, message: int) -> list[Row]:
    return queue.rows("SELECT * FROM messages.explain(%s)", [message])


@pytest.fixture
def worker(queue: Queue) -> None:
    """A live worker of topic t."""
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("topic", "channel", "what"),
    [("*", None, "every topic"), ("t", None, "topic t"), ("t", "acme", "channel acme of topic t")],
)
def test_a_pause_shows_user_end_and_reason(queue: Queue, topic: str, channel: str | None, what: str) -> None:
    queue.later("0")
    message = queue.publish(channel="acme")
    queue.call("pause", topic, "too loud", resume_in="10 minutes", channel=channel)
    queue.later("5 minutes")
    queue.call("touch_worker", "w1", {})

    (row,) = rows(queue, message)

    user = queue.value("SELECT session_user::text")
    assert row.code == "paused"
    assert row.reason == f"{what} has been paused for 5m by {user}, for another 5m: too loud"
    assert (row.detail["topic"], row.detail["channel"], row.detail["reason"]) == (topic, channel, "too loud")


@pytest.mark.usefixtures("worker")
def test_a_pause_without_an_end_lasts_until_it_is_resumed(queue: Queue) -> None:
    message = queue.publish()
    queue.call("pause", "t")

    (row,) = rows(queue, message)

    assert row.reason.endswith("until it is resumed")


@pytest.mark.usefixtures("worker")
def test_a_pause_of_another_channel_or_an_expired_one_holds_up_no_message(queue: Queue) -> None:
    message = queue.publish(channel="acme")
    queue.call("pause", "t", channel="other")
    queue.call("pause", "t", resume_in="1 s")
    queue.later("2 s")

    assert [row.code for row in rows(queue, message)] == ["ready"]


@pytest.mark.usefixtures("worker")
def test_an_open_breaker_shows_why_and_when_it_probes(queue: Queue) -> None:
    queue.later("0")
    message = queue.publish()
    queue.policy(breaker={"pause": "20s"})
    queue.conn.execute(
        """
        INSERT INTO messages.breaker (topic, position, changed_at, probe_at, reason)
        VALUES ('t', 'open', messages.now(), messages.now() + interval '20 s', '9 of 10 failed')
        """
    )

    (row,) = rows(queue, message)

    assert row.code == "breaker_open"
    assert row.reason == "the breaker of topic t has been open for 0s: 9 of 10 failed; it lets a probe through in 20s"


def test_a_topic_without_a_live_worker_is_named(queue: Queue) -> None:
    queue.call("register_worker", "w2", "h", 8, "1", ["other"], 10)
    message = queue.publish()

    (row,) = rows(queue, message)

    assert row.code == "unhandled"
    assert row.reason == "no live worker handles topic t: start one with a handler for it"
    assert row.detail["live_workers"] == 1


# explain_queue_position: explain_queue_position: which messages are claimed first.


def test_it_counts_the_messages_that_go_first(queue: Queue) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)
    queue.publish_many(3)
    message = queue.publish()

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert (row.code, row.reason, row.detail["ahead"]) == ("behind", "3 ready messages of topic t come first", 3)


def test_a_worker_that_handles_the_topic_by_a_pattern_is_named_or_has_the_free_slot(queue: Queue) -> None:
    for name, topics in (("w1", ["jobs.a"]), ("w2", ["jobs.*"])):
        queue.call("register_worker", name, "h", 7, "1", topics, 10)
        queue.call("touch_worker", name, {"in_flight": 10})
    message = queue.publish("jobs.a")

    busy = queue.row("SELECT * FROM messages.explain(%s)", [message])
    queue.call("touch_worker", "w2", {"in_flight": 9})

    assert (busy.code, [each["worker"] for each in busy.detail["workers"]]) == ("workers_busy", ["w1", "w2"])
    assert queue.row("SELECT * FROM messages.explain(%s)", [message]).code == "ready"


def test_workers_without_a_free_slot_are_named(queue: Queue) -> None:
    for name in ("w1", "w2"):
        queue.call("register_worker", name, "h", 7, "1", ["t"], 10)
        queue.call("touch_worker", name, {"in_flight": 10})
    message = queue.publish()

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])
    queue.call("touch_worker", "w2", {"in_flight": 9})
    with_a_place = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.code == "workers_busy"
    assert [w["worker"] for w in row.detail["workers"]] == ["w1", "w2"]
    assert with_a_place.code == "ready"


# count_ahead: count_ahead: how many messages are claimed first.

AHEAD = "SELECT messages.count_ahead(m, messages.now(), %s) FROM messages.message AS m WHERE m.id = %s"


@pytest.mark.parametrize("channel", [None, "c"])
def test_more_urgent_messages_and_those_that_waited_longer_go_first(queue: Queue, channel: str | None) -> None:
    earlier = queue.publish(channel=channel)
    urgent = queue.publish(channel=channel, priority=1)
    mine = queue.publish(channel=channel)
    queue.publish(channel=channel)
    queue.publish(channel=channel, priority=9)
    queue.publish(channel=channel, priority=0, wait="1 hour")
    queue.publish(channel="another")

    assert queue.value(AHEAD, [1000, mine]) == 2
    assert queue.value(AHEAD, [1000, earlier]) == 1
    assert queue.value(AHEAD, [1000, urgent]) == 0


@pytest.mark.newest
def test_count_ahead_its_cost_is_bounded_however_long_the_queue_is(own_queue: Queue) -> None:
    own_queue.publish_many(30_000)
    mine = own_queue.publish()
    own_queue.conn.execute("VACUUM ANALYZE messages.message")

    assert own_queue.buffers(AHEAD, [100, mine]) < 300


# format_slot_holders: format_slot_holders: the holders of slots as text for people.


def test_three_holders_are_named_and_the_others_are_indicated(queue: Queue) -> None:
    holders = [{"worker": "w", "id": each} for each in (1, 2, 3, 4)]

    assert queue.call("format_slot_holders", Jsonb(holders[:1])) == "w (message 1)"
    assert queue.call("format_slot_holders", Jsonb(holders)) == "w (message 1), w (message 2), w (message 3), ..."


# slot_holders: slot_holders: which messages hold the slots of a topic or channel that is at its limit.


def test_at_most_twenty_holders_are_returned(queue: Queue) -> None:
    queue.publish_many(30)
    queue.claim()

    assert len(queue.call("slot_holders", "t", None, 30)) == 20
