"""The audit log of tables: which columns were changed, by whom."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue, Row

# audit_change: The trigger audit_change: direct changes of policies, channels, schedules and subscriptions.


def audit(queue: Queue) -> list[Row]:
    return queue.rows("SELECT action, topic, target, detail FROM messages.audit ORDER BY id")


def test_a_changed_policy_is_recorded_with_old_and_new_values(queue: Queue) -> None:
    queue.policy("mail", max_attempts=3)
    queue.policy("mail", max_attempts=5, notify="always")

    changes = [row.detail["changes"] for row in audit(queue)]
    assert changes == [
        {"max_attempts": {"old": None, "new": 3}},
        {"max_attempts": {"old": 3, "new": 5}, "notify": {"old": None, "new": "always"}},
    ]


def test_an_update_that_changes_nothing_is_not_recorded(queue: Queue) -> None:
    queue.policy("mail", max_attempts=3)
    queue.policy("mail", max_attempts=3)

    assert len(audit(queue)) == 1


def test_a_pause_is_recorded_once_whether_by_function_or_by_update(queue: Queue) -> None:
    queue.call("pause", "mail", "the relay is down", channel="acme")
    queue.conn.execute(
        "UPDATE messages.channel SET paused_at = NULL, resume_at = NULL, paused_by = NULL, paused_reason = NULL"
    )
    queue.policy("mail", paused_at="2026-01-01 00:00+00")
    queue.call("resume", "mail")

    assert [(row.action, row.target) for row in audit(queue)] == [
        ("pause", "acme"),
        ("resume", "acme"),
        ("pause", None),
        ("resume", None),
    ]
    assert audit(queue)[0].detail == {"reason": "the relay is down"}


def test_a_resume_that_deletes_the_row_of_a_channel_is_one_action(queue: Queue) -> None:
    queue.call("pause", "mail", channel="acme")

    queue.call("resume", "mail", "acme")

    assert [row.action for row in audit(queue)] == ["pause", "resume"]


def test_the_deletion_of_an_expired_pause_is_not_recorded(queue: Queue) -> None:
    queue.call("pause", "mail", channel="acme", resume_in="1 minute")
    queue.later("2 minutes")

    queue.call("prune_pauses")

    assert [row.action for row in audit(queue)] == ["pause"]


def test_a_schedule_is_recorded_when_an_operator_changes_it_and_not_when_it_fires(queue: Queue) -> None:
    queue.schedule("nightly")
    queue.conn.execute(
        "UPDATE messages.schedule SET cron = '5 * * * *', next_tick = messages.now() - interval '1 minute'"
    )
    queue.conn.execute(
        "UPDATE messages.schedule SET next_tick = date_trunc('minute', messages.now() - interval '1 minute')"
    )
    queue.call("fire_schedules")
    queue.call("pause_schedule", "nightly")
    queue.call("resume_schedule", "nightly")
    queue.conn.execute("DELETE FROM messages.schedule")

    assert queue.ids()
    assert [(row.action, row.target) for row in audit(queue)] == [
        (action, "nightly")
        for action in ("add_schedule", "change_schedule", "pause_schedule", "resume_schedule", "remove_schedule")
    ]


def test_every_column_of_a_schedule_that_firing_does_not_write_is_recorded_of_the_owner_too(queue: Queue) -> None:
    """Firing writes the others with the rights of the owner, at each tick."""
    columns = queue.value(
        """SELECT array_agg(a.attname::text) FROM pg_trigger AS t
           JOIN pg_attribute AS a ON a.attrelid = t.tgrelid AND a.attnum > 0 AND a.attnum <> ALL (t.tgattr)
           WHERE t.tgrelid = 'messages.schedule'::regclass AND t.tgname = 'audit_change'"""
    )

    fired = {"next_tick", "last_tick", "last_message_id", "last_fired_at"}
    failed = {"last_error", "failed_at", "failures", "retry_at"}
    assert set(columns) == fired | failed


# Columns that an operator can write without an entry: a trigger sets them, or they have no effect without a pause.
NOT_RECORDED = {
    ("topic", "updated_at"),
    *((table, name) for table in ("topic", "channel") for name in ("resume_at", "paused_by", "paused_reason")),
    *(("schedule", name) for name in ("paused_by", "paused_reason")),
}
# A value for each type, and for columns that take only certain ones.
OTHER = {
    "text": "'other'", "messages.topic_name": "'other'", "messages.topic_or_pattern": "'other'",
    "smallint": "1", "integer": "2", "bigint": "7",
    "double precision": "3.5",
    "boolean": "true", "interval": "'2 h'", "timestamp with time zone": "'2030-01-01 00:00+00'", "jsonb": "'{}'",
    "backoff": """'{"kind": "none"}'""", "breaker": """'{"window": "1m", "min_attempts": 2, "failure_rate": 0.5}'""",
    "cron": "'7 7 * * *'", "time_zone": "'Europe/Berlin'", "missed": "'all'", "while_paused": "'skip'",
    "on_full": "'drop'", "key_on_retry": "'keep'",
    "archive_success": "'none'", "notify": "'off'", "paused_at": "'2020-01-01 00:00+00'", "payload_schema": "'true'",
}  # fmt: skip
ONLY_DEFAULTS = {"listener_for", "cron_age", "snapshot_age", "undelivered_for", "min_workers"}
ROWS = {
    "topic": "(topic, max_attempts) VALUES ('mail', 3)",
    "channel": "(topic, channel, concurrency) VALUES ('mail', 'acme', 3)",
    "subscription": "(topic, subscriber) VALUES ('orders', 'mail')",
    "schedule": "(name, cron, topic, payload) VALUES ('nightly', '0 3 * * *', 'mail', '1')",
    "alert_threshold": "(topic, dead_per_hour) VALUES ('mail', 5)",
}


def written_by_operators(queue: Queue, privilege: str) -> list[tuple[str, str, str]]:
    """Return the columns that an operator may write, with their types, from the catalog."""
    query = """
        SELECT c.relname::text, a.attname::text, a.atttypid::regtype::text
        FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind IN ('r', 'p', 'v')
          AND has_column_privilege('messages_operator', c.oid, a.attnum, %s)
        ORDER BY c.relname, a.attnum
        """
    return [tuple(row) for row in queue.rows(query, [privilege])]


def test_each_column_that_an_operator_may_write_is_recorded(queue: Queue) -> None:
    missing = set()
    queue.conn.execute("SET ROLE messages_operator")
    for table, column, kind in written_by_operators(queue, "UPDATE"):
        with queue.conn.transaction(force_rollback=True):
            queue.conn.execute(f"INSERT INTO messages.{table} {ROWS[table]}".encode())
            before = queue.value("SELECT count(*) FROM messages.audit")
            # The row of the defaults is left out, unless only that row has the column.
            only = "topic = '*'" if column in ONLY_DEFAULTS else "topic <> '*'"
            value = OTHER.get(column, OTHER.get(kind))
            done = queue.conn.execute(f"UPDATE messages.{table} SET {column} = {value} WHERE {only}".encode())
            assert done.rowcount == 1
            if queue.value("SELECT count(*) FROM messages.audit") == before:
                missing.add((table, column))

    assert missing == NOT_RECORDED


def test_each_row_that_an_operator_adds_or_deletes_is_recorded(queue: Queue) -> None:
    queue.conn.execute("SET ROLE messages_operator")
    for table, row in ROWS.items():
        queue.conn.execute(f"INSERT INTO messages.{table} {row}".encode())
        queue.conn.execute(f"DELETE FROM messages.{table} WHERE topic <> '*'".encode())

    assert {table for table, _, _ in written_by_operators(queue, "INSERT")} == set(ROWS)
    assert [row.action.split("_")[0] for row in audit(queue)] == [
        "set", "remove", "set", "remove", "subscribe", "unsubscribe", "add", "remove", "set", "remove",
    ]  # fmt: skip


def test_a_tick_that_an_operator_sets_by_hand_is_recorded_beside_other_changes(queue: Queue) -> None:
    queue.schedule("nightly")
    queue.conn.execute("SET ROLE messages_operator")

    queue.conn.execute("UPDATE messages.schedule SET priority = 1, next_tick = '2020-01-01 00:00+00'")
    queue.conn.execute("RESET ROLE")
    queue.call("fire_schedules")

    assert queue.ids()
    assert [row.action for row in audit(queue)] == ["add_schedule", "change_schedule"]
    assert audit(queue)[-1].detail["changes"].keys() == {"priority", "next_tick"}


def test_a_policy_that_is_moved_to_another_topic_is_recorded(queue: Queue) -> None:
    queue.policy("mail", max_attempts=3)

    queue.conn.execute("UPDATE messages.topic SET topic = 'orders' WHERE topic = 'mail'")

    assert audit(queue)[-1].detail == {
        "changes": {"topic": {"old": "mail", "new": "orders"}},
        "topics": ["mail", "orders"],
    }


def test_a_change_that_is_rolled_back_leaves_no_entry(queue: Queue) -> None:
    with queue.conn.transaction(force_rollback=True):
        queue.policy("mail", max_attempts=3)

    assert audit(queue) == []


# messages.jsonb_diff: what differs between two rows.


def changes(queue: Queue, old: Any, new: Any, without: list[str] | None = None) -> Any:
    return queue.value("SELECT messages.jsonb_diff(%s, %s, %s)", [Jsonb(old), Jsonb(new), without or []])


def test_a_long_value_is_cut(queue: Queue) -> None:
    new = changes(queue, {}, {"schema": {"x": "y" * 5000}})["schema"]["new"]

    assert len(new) == 1003
    assert new.startswith('{"x": "yyy')


# messages.actor: the name that the audit log records for an action.


def test_a_caller_may_set_a_name_for_a_transaction(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.call("now")
        queue.conn.execute("SELECT set_config('messages.actor', 'ops', true)")
        assert queue.call("actor") == "ops"

    assert queue.call("actor") == queue.value("SELECT session_user::text")


def test_a_long_name_is_cut(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SELECT set_config('messages.actor', repeat('x', 1000), true)")
        assert len(queue.call("actor")) == 200
