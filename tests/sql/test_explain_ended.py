"""explain_ended: how a message ended, and which messages came from it."""

from __future__ import annotations

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue


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


def test_the_subscribers_that_got_a_copy_are_named(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('user.changed', 'mail')")
    message = queue.publish("user.changed")
    (copy,) = queue.rows("SELECT id FROM messages.message WHERE topic = 'mail'")

    rows = queue.rows("SELECT * FROM messages.explain(%s)", [message])

    assert [row.code for row in rows] == ["fanned_out", "success"]
    assert rows[0].reason.endswith(f"to mail as message {copy.id}")


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
