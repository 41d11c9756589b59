"""The audit log of operations: what was done, by whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.sql.deaths import copy_of, die, outcomes
from tests.sql.queue import Queue, Row
from tests.sql.sinks import Sink, raise_alert

# messages.audit_action: every operator's action by a function is recorded once, and no action of a worker is.

MAY_CALL = """
    SELECT p.proname AS name FROM pg_proc AS p
    WHERE p.pronamespace = 'messages'::regnamespace AND p.provolatile = 'v' AND p.prorettype <> 'trigger'::regtype
      AND has_function_privilege('messages_operator', p.oid, 'EXECUTE')
"""
# Functions that operators may call but that are no operator's action: they only read, or a program calls them.
NO_ACTION = {
    *("now", "stats", "explain", "unhandled_topics", "wait_for", "wait_for_many", "pending_with_key"),
    *("open_export", "advance_export", "lock_export", "unlock_export", "lock_policies"),
    *("check_token", "check_session", "open_session", "close_session", "begin_request", "end_request"),
    *("claim_delivery", "settle_delivery"),
    *("sign_signal", "check_signal"),
    *("create_batch", "close_batch"),
}


def audit(queue: Queue) -> list[Row]:
    return queue.rows("SELECT * FROM messages.audit ORDER BY id")


@contextmanager
def without_audit(queue: Queue) -> Iterator[None]:
    """Disable triggers: the preparation is not part of the action."""
    queue.conn.execute("SET session_replication_role = replica")
    yield
    queue.conn.execute("SET session_replication_role = origin")


def cancel(queue: Queue) -> None:
    queue.call("cancel", [queue.publish()])


def skip(queue: Queue) -> None:
    queue.call("skip", [queue.publish()])


def unblock(queue: Queue) -> None:
    queue.call("unblock", [queue.send(after=[queue.publish("first")]).id])


def signal(queue: Queue) -> None:
    queue.call("signal", queue.publish(), "ok")


def signal_key(queue: Queue) -> None:
    queue.publish(key="k")
    queue.call("signal_key", "t", "k", "ok")


def retry_now(queue: Queue) -> None:
    queue.call("retry_now", [queue.publish(wait="1 hour")])


def edit(queue: Queue) -> None:
    queue.value("SELECT messages.edit(%s, '2')", [queue.publish()])


def reencrypt(queue: Queue) -> None:
    published = queue.publish(body=b"\x93PGR")
    queue.value(
        "SELECT messages.reencrypt(ARRAY[m.id], ARRAY[md5(md5(m.body))], ARRAY[m.body], ARRAY[NULL::jsonb], 'k') "
        "FROM messages.message AS m"
        " WHERE m.id = %s",
        [published],
    )


def redrive(queue: Queue) -> None:
    queue.rows("SELECT * FROM messages.redrive(%s)", [[die(queue)]])


def redrive_where(queue: Queue) -> None:
    die(queue)
    queue.rows("SELECT * FROM messages.redrive_where('t')")


def redrive_edited(queue: Queue) -> None:
    queue.rows("SELECT * FROM messages.redrive_edited(%s, '2')", [die(queue)])


def requeue_dead_letters(queue: Queue) -> None:
    with without_audit(queue):
        queue.policy(dead_letter=True)
    queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [[copy_of(queue, die(queue)).id]])


def replay(queue: Queue) -> None:
    queue.publish()
    queue.settle("complete", queue.claim())
    queue.rows("SELECT * FROM messages.replay('t', now() - interval '1 hour', now() + interval '1 hour')")


def delete(queue: Queue) -> None:
    queue.call("delete", [queue.publish()])


def purge_topic(queue: Queue) -> None:
    queue.publish()
    queue.call("purge_topic", "t")


def purge_archive(queue: Queue) -> None:
    die(queue)
    queue.rows("SELECT * FROM messages.purge_archive(messages.now())")


def cancel_batch(queue: Queue) -> None:
    batch = queue.call("create_batch")
    queue.publish(batch_id=batch)
    queue.call("cancel_batch", batch)


def redrive_batch(queue: Queue) -> None:
    batch = queue.call("create_batch")
    die(queue, batch_id=batch)
    queue.rows("SELECT * FROM messages.redrive_batch(%s)", [batch])


def pause(queue: Queue) -> None:
    queue.call("pause", "t", resume_in=timedelta(hours=1))


def resume(queue: Queue) -> None:
    with without_audit(queue):
        queue.policy(paused_at="2026-01-01 00:00+00")
    queue.call("resume", "t")


def scheduled(queue: Queue, **columns: Any) -> None:
    with without_audit(queue):
        queue.schedule("nightly", **columns)


def run_schedule(queue: Queue) -> None:
    scheduled(queue)
    queue.rows("SELECT * FROM messages.run_schedule('nightly')")


def pause_schedule(queue: Queue) -> None:
    scheduled(queue)
    queue.call("pause_schedule", "nightly")


def resume_schedule(queue: Queue) -> None:
    scheduled(queue, paused_at="2026-01-01 00:00+00")
    queue.call("resume_schedule", "nightly")


def delete_export(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.export_cursor (name, lake, lake_id, system_identifier) VALUES ('lake', '/lake', 'x', '1')"
    )
    queue.call("delete_export", "lake")


def drain_worker(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 1, "1.0", ["t"], 1)
    queue.call("drain_worker", "w")


def scale_worker(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 1, "1.0", ["t"], 1)
    queue.call("touch_worker", "w", '{"listener": "listening"}')
    queue.call("scale_worker", "w", 5)


def open_user_session(queue: Queue) -> None:
    queue.call("open_user_session", "oidc:ada", bytes(32), ["viewer"], ["*"], timedelta(hours=1))


def add_token(queue: Queue) -> None:
    queue.value("SELECT messages.add_token('ops', sha256('secret'), '{operator}')")


def revoke_token(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.token (name, digest, roles, topics) VALUES ('ops', sha256('s'), '{viewer}', '{*}')"
    )
    queue.call("revoke_token", "ops")


def silence(queue: Queue) -> None:
    queue.call("silence", "dead_message", "mail", **{"for": "1 hour"})


def unsilence(queue: Queue) -> None:
    query = "INSERT INTO messages.silence (topic, until) VALUES ('mail', now() + interval '1 hour') RETURNING id"
    queue.call("unsilence", queue.value(query))


def delete_sink(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.alert_sink (name, type) VALUES ('ops', 'webhook')")
    queue.call("delete_sink", "ops")


def replay_alerts(queue: Queue) -> None:
    sink = Sink(queue)
    raise_alert(queue, "a")
    sink.deliver_all()
    queue.call("replay_alerts")


def tick(queue: Queue) -> None:
    queue.rows("SELECT * FROM messages.tick()")


def run_maintenance(queue: Queue) -> None:
    queue.call("run_maintenance", "expire_locks")


ACTIONS: list[Callable[[Queue], None]] = [
    *(cancel, skip, retry_now, signal, signal_key, unblock, edit, reencrypt, delete, cancel_batch, redrive_batch),
    *(redrive, redrive_where, redrive_edited, requeue_dead_letters, replay, purge_archive, purge_topic),
    *(pause, resume, run_schedule, pause_schedule, resume_schedule, delete_export, drain_worker, scale_worker),
    *(add_token, open_user_session, revoke_token, silence, unsilence, delete_sink, replay_alerts),
    *(tick, run_maintenance),
]
# Actions whose name differs from their function's.
NAMES = {
    "signal_key": "signal",
    "silence": "alert.silence",
    "unsilence": "alert.unsilence",
    "delete_sink": "alert.delete_sink",
    "replay_alerts": "alert.replay",
    "run_maintenance": "expire_locks",
    "open_user_session": "log_in",
}
# What an action does to messages is recorded after it, where it may take several calls.
THEN = {"cancel_batch": ["cancel"]}


def test_the_list_has_each_function_that_changes_something_and_that_operators_may_call(queue: Queue) -> None:
    callable_ = {row.name for row in queue.rows(MAY_CALL)}

    assert callable_ - NO_ACTION == {action.__name__ for action in ACTIONS}


@pytest.mark.parametrize("act", ACTIONS, ids=lambda act: act.__name__)
def test_an_operation_is_recorded_once_with_its_actor(queue: Queue, act: Callable[[Queue], None]) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SELECT set_config('messages.actor', 'ops', true)")
        act(queue)

    actions = [NAMES.get(act.__name__, act.__name__), *THEN.get(act.__name__, [])]
    user = queue.value("SELECT session_user::text")
    assert [(row.action, row.actor, row.db_user) for row in audit(queue)] == [(a, "ops", user) for a in actions]


def test_an_entry_is_rolled_back_with_its_action(queue: Queue) -> None:
    with queue.conn.transaction(force_rollback=True):
        cancel(queue)

    assert audit(queue) == []


def test_the_work_of_workers_and_of_the_maintenance_is_not_recorded(queue: Queue) -> None:
    queue.policy(max_attempts=2)
    before = len(audit(queue))
    queue.publish_many(6)
    first, second, third, fourth, fifth, sixth = queue.claim()
    queue.settle("complete", [first])
    queue.settle("retry", [second], ["boom"])
    queue.settle("fail", [third], ["boom"])
    queue.settle("reject", [fourth], ["boom"])
    queue.settle("defer", [fifth], [timedelta(hours=1)])
    queue.settle("release", [sixth])
    for caller in ("cron", "daemon"):
        assert queue.rows("SELECT * FROM messages.tick(%s)", [caller])

    assert len(audit(queue)) == before


def test_one_call_for_many_messages_is_one_entry(queue: Queue) -> None:
    one, *ids = queue.publish("mail"), *queue.publish_many(499)
    queue.call("cancel", [one])
    queue.call("skip", [queue.publish("b"), *ids])

    single, many = audit(queue)
    assert (single.topic, single.target, single.detail["count"]) == ("mail", str(one), 1)
    assert (many.topic, many.target, many.detail["topics"]) == (None, None, ["b", "t"])
    assert (many.detail["count"], len(many.detail["ids"])) == (500, 100)


@pytest.mark.parametrize("act", ["cancel", "redrive"])
def test_a_call_for_no_message_is_not_recorded(queue: Queue, act: str) -> None:
    queue.rows(f"SELECT messages.{act}(%s)", [[4711]])

    assert audit(queue) == []


def test_unknown_values_of_an_action_are_left_out(queue: Queue) -> None:
    cancel(queue)

    (row,) = audit(queue)
    assert "reason" not in row.detail


# The entry of a redrive.


def test_one_entry_counts_the_outcomes(queue: Queue) -> None:
    first, second = die(queue), die(queue)
    outcomes(queue, "redrive", [first])

    outcomes(queue, "redrive", [first, second])

    row = audit(queue)[-1]
    assert (row.action, row.topic, row.target) == ("redrive", "t", str(second))
    assert row.detail["outcomes"] == {"redriven": 1, "redriven_before": 1}
    assert row.detail["message_id"] == max(queue.ids())


def test_the_filters_of_a_redrive_are_recorded(queue: Queue) -> None:
    die(queue, error="disk 7")
    die(queue, error="disk 7")

    queue.rows("SELECT * FROM messages.redrive_where('t', p_error => 'disk', p_rate => 5)")

    (row,) = audit(queue)
    assert (row.action, row.detail["count"], row.detail["rate"]) == ("redrive_where", 2, 5)
    assert row.detail["filter"] == {"topic": "t", "error": "disk"}


def test_an_edited_redrive_records_which_parts_were_edited_and_not_their_contents(queue: Queue) -> None:
    died = die(queue)

    queue.rows("SELECT * FROM messages.redrive_edited(%s, p_payload => '\"secret\"', p_merge => false)", [died])

    (row,) = audit(queue)
    assert (row.action, row.detail["edited"]) == ("redrive_edited", ["payload"])
    assert "secret" not in str(row.detail)
