"""plpgsql_check checks every function of the schema as the server would run it, and finds nothing."""

from __future__ import annotations

import pytest

from tests.server.postgres import Database
from tests.sql.queue import Queue

# Debian packages it for this server; the functions are the same on every one.
pytestmark = pytest.mark.parametrize("server", ["15"], indirect=True)

# A trigger function can only be checked together with its table.
STANDS_ON = {
    "new_message": ("messages.message", "fresh"),
    "admit_message": ("messages.message", None),
    "apply_publish_policies": ("messages.message", "fresh"),
    "check_topic": ("messages.topic", None),
    "topic_changed": ("messages.topic", None),
    "check_channel": ("messages.channel", None),
    "channel_changed": ("messages.channel", None),
    "check_schedule": ("messages.schedule", None),
    "schedule_changed": ("messages.schedule", None),
    "subscription_changed": ("messages.subscription", None),
    "audit_change": ("messages.topic", None),
    "propagate_ends_at_commit": ("messages.end_event", None),
    "apply_batch_changes_at_commit": ("messages.batch_change", None),
    "check_attempts": ("messages.publish_stage", "fresh"),
}
CHECK = """
    SELECT c.message
    FROM plpgsql_check_function_tb(
      %(function)s::regprocedure, coalesce(%(relation)s::regclass, 0), newtable => %(newtable)s,
      fatal_errors => false, other_warnings => true, extra_warnings => true, performance_warnings => true,
      security_warnings => true
    ) AS c
    -- An integer that becomes a bigint, once per call, is not an issue.
    WHERE c.hint IS DISTINCT FROM 'Hidden casting can be a performance issue.'
"""
FUNCTIONS = """
    SELECT p.proname AS name, p.oid::regprocedure::text AS signature
    FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang
    WHERE p.pronamespace = 'messages'::regnamespace AND l.lanname = 'plpgsql'
"""
BY_DESIGN = {
    # It must see what was committed after the caller's snapshot; see its header.
    "lost_ids": ["routine is marked as VOLATILE, should be STABLE"],
    # It must see which session came first.
    "pending_with_key": ["routine is marked as VOLATILE, should be STABLE"],
    # It must see what the call that it waited for has committed.
    "read_own_job": ["routine is marked as VOLATILE, should be STABLE"],
    # They lock rows in a subquery; the checker does not count that.
    "completion_states": ["routine is marked as VOLATILE, should be STABLE"],
    "check_staged": ["routine is marked as VOLATILE, should be STABLE"],
    "pick_priority": ["routine is marked as VOLATILE, should be STABLE"],
    "pick_channel_rows": ["routine is marked as VOLATILE, should be STABLE"],
    # It must see what was committed while its caller waited for a lock.
    "is_exported": ["routine is marked as VOLATILE, should be STABLE"],
    # It names its partition at run time; the checker cannot see that it deletes.
    # It quotes the names of the columns when it puts them together; the checker sees only the text.
    "inherit_policies": ["text type variable is not sanitized"],
}


@pytest.fixture
def queue(own_database: Database) -> Queue:
    """A database with the checker, and with the one table of pg_cron that a function reads if it exists."""
    queue = Queue(own_database.connect())
    queue.conn.execute(
        """
        CREATE EXTENSION plpgsql_check;
        CREATE SCHEMA IF NOT EXISTS cron;
        CREATE TABLE IF NOT EXISTS cron.job_run_details (runid bigint, command text, start_time timestamptz);
        """
    )
    return queue


def findings(queue: Queue, name: str, signature: str) -> list[str]:
    relation, newtable = STANDS_ON.get(name, (None, None))
    found = queue.rows(CHECK, {"function": signature, "relation": relation, "newtable": newtable})
    return [row.message for row in found]


def test_no_function_has_a_finding(queue: Queue) -> None:
    functions = queue.rows(FUNCTIONS)

    found = {f.name: findings(queue, f.name, f.signature) for f in functions}

    assert len(functions) > 25
    assert {name: messages for name, messages in found.items() if messages} == BY_DESIGN


def test_every_trigger_function_is_checked_with_its_table(queue: Queue) -> None:
    triggers = queue.rows(
        f"SELECT f.name FROM ({FUNCTIONS}) AS f JOIN pg_proc AS p ON p.oid = f.signature::regprocedure "
        "WHERE p.prorettype = 'trigger'::regtype"
    )

    assert {t.name for t in triggers} == set(STANDS_ON)


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        ("PERFORM m.colour FROM messages.message AS m;", "column m.colour does not exist"),
        ("PERFORM messages.no_such_function();", "function messages.no_such_function() does not exist"),
        ("EXECUTE 'SELECT ' || p_text;", "text type variable is not sanitized"),
    ],
)
def test_the_checker_finds_a_fault(queue: Queue, body: str, finding: str) -> None:
    queue.conn.execute(
        f"CREATE FUNCTION messages.wrong(p_text text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN {body} END $$".encode()
    )

    assert finding in findings(queue, "wrong", "messages.wrong(text)")
