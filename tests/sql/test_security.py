"""The rights of each role: read from the catalog, and tried role by role."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from pgrouse.client.call import run
from pgrouse.client.queries.schedule import find_schedules
from tests.server.emptied import TABLES
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

ROLES = ("publisher", "worker", "operator", "analyst", "maintainer")
READABLE_COLUMNS = """
  SELECT c.relname, string_agg(quote_ident(a.attname), ', ')
  FROM pg_class AS c
  JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
  WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind = 'v'
    AND has_column_privilege(%s, c.oid, a.attnum, 'SELECT')
  GROUP BY c.relname
  ORDER BY c.relname"""
FUNCTIONS = "SELECT p.* FROM pg_proc AS p WHERE p.pronamespace = 'messages'::regnamespace"

# Functions that find silent failures.
DOCTOR = {
    "doctor",
    "examine_server",
    "examine_connections",
    "examine_settings",
    "examine_holders",
    "examine_snapshots",
    "examine_tables",
    "examine_schema",
    "examine_archive",
    "examine_ticks",
    "examine_workers",
    "examine_topics",
    "examine_conditions",
}
# The functions that each role may call. No role may call a function that is missing here: only the owner's own
# functions do.
MAY_CALL = {
    "publisher": {
        *("publish", "payload_schema_digest", "new_message", "notify_inserted", "long_number_bytes", "notify"),
        "check_backoff",
        "wait_for_many",
        *("create_batch", "close_batch", "batch_progress"),
        *("signal", "signal_key", "sign_signal"),
        *("begin_staging", "publish_staged", "delete_staged", "job_result", "job_rejected"),
        *("inherits_from", "patterns_of"),
    },
    "worker": {
        *(
            "now",
            "claim",
            "claim_with_next_due",
            "next_due",
            "ready_topics",
            "complete",
            "reject",
            "fail",
            "retry",
            "defer",
            "release",
            "release_orphaned",
            "heartbeat",
            "cancelled_ids",
            "set_progress",
            "count_runs",
        ),
        *(
            "arm",
            "disarm",
            "lower_armed_until",
            "notify",
            "draw_xid",
            "oldest_running_xid",
            "register_worker",
            "touch_worker",
            "record_measures",
            "unregister_worker",
            "touch_http_worker",
            "touch_http_holders",
            "is_paused",
            "inherits_from",
            "patterns_of",
            "topic_regexps",
            "tick",
            "raise_low_water",
        ),
        *("fire_schedules", "next_schedule_due", "next_ticks"),
        *("claim_delivery", "settle_delivery", "alerting_problem"),
        *("read_claimed", "claimed_ids", "results", "count_ready", "lock_consumer"),
        *("save_step", "load_steps", "save_logs", "predecessors", "completion_states"),
        *("load_events", "wait_for_event", "signal", "signal_key", "sign_signal"),
    },
    "operator": {
        *DOCTOR,
        "now",
        "cancel",
        "skip",
        *("wait_for", "wait_for_many"),
        "redrive",
        "redrive_where",
        "redrive_edited",
        "requeue_dead_letters",
        "replay",
        "purge_archive",
        "delete",
        "purge_topic",
        *("open_export", "advance_export", "delete_export", "list_exports"),
        *("lock_export", "unlock_export", "lock_policies", "lock_holders"),
        *("silence", "unsilence", "silence_of", "conditions", "open_conditions", "incidents"),
        *("replay_alerts", "delete_sink"),
        *("claim_delivery", "settle_delivery", "alerting_problem", "alert_severity"),
        *("add_token", "revoke_token", "check_token", "check_session", "close_session"),
        *("open_session", "open_user_session"),
        *("begin_request", "end_request", "drain_worker", "scale_worker", "run_maintenance"),
        "dead_topics",
        "find_dead",
        "preview_redrive",
        "dead_groups",
        "lineage",
        "tick",
        "stats",
        "list_topics",
        "is_paused",
        *("live_state", "due_at", "is_blocked"),
        "topic_state",
        "unhandled_topics",
        *("next_ticks", "run_schedule", "pause_schedule", "resume_schedule"),
        *("find_messages", "retry_now", "edit", "reencrypt", "display_json"),
        *("signal", "signal_key", "sign_signal", "check_signal"),
        *("unblock", "workflow", "workflow_state", "workflow_messages"),
        *("create_batch", "close_batch", "batch_progress", "cancel_batch", "redrive_batch"),
        *("topic_matches", "inherits_from", "patterns_of", "worker_of", "topic_regexps"),
        *("latency", "throughput", "quantile", "unpack_histogram", "snapshot_age"),
        "check_topic",
        "topic_changed",
        "check_policy",
        "check_backoff",
        "check_breaker",
        "is_printable",
        "check_channel",
        "channel_changed",
        "pause",
        "resume",
        "explain",
    },
    "analyst": {
        "conditions",
        "open_conditions",
        "lock_holders",
        *DOCTOR,
        "now",
        "stats",
        "list_topics",
        "is_paused",
        *("live_state", "due_at", "is_blocked"),
        "topic_state",
        "unhandled_topics",
        "explain",
        "dead_topics",
        "find_dead",
        "dead_groups",
        "lineage",
        "list_exports",
        *("workflow", "workflow_state", "workflow_messages"),
        *("topic_matches", "inherits_from", "patterns_of", "worker_of", "topic_regexps"),
        *("latency", "throughput", "quantile", "unpack_histogram", "snapshot_age"),
    },
    "maintainer": {
        "tick",
        "propagate_missed_ends",
        "apply_missed_batch_changes",
        "expire_locks",
        "expire_messages",
        "update_breakers",
        "renotify_stale",
        "fire_schedules",
        "update_conditions",
        "raise_low_water",
        "maintain_partitions",
        "purge",
        "prune",
    },
}


@pytest.fixture(scope="module")
def users(server: Postgres) -> Iterator[None]:
    """A user for each role, a member of it and of nothing else, and one that is a member of none."""
    with server.admin() as admin:
        for role in ROLES:
            admin.execute(f"CREATE ROLE test_{role} IN ROLE messages_{role}")
        admin.execute("CREATE ROLE test_no_role")
        yield
        for role in (*ROLES, "no_role"):
            admin.execute(f"DROP ROLE test_{role}")


@pytest.fixture
def as_role(users: None, database: Database) -> Iterator[Callable[[str], Queue]]:
    """`as_role("worker")` is a connection of that role's user."""
    connections: list[psycopg.Connection[Any]] = []

    def connect(role: str) -> Queue:
        connections.append(database.connect())
        # As after a login: session_user changes too, unlike by SET ROLE.
        connections[-1].execute(f"SET SESSION AUTHORIZATION test_{role}".encode())
        return Queue(connections[-1])

    yield connect
    for conn in connections:
        conn.execute("DISCARD ALL")  # what it made in pg_temp would keep the user from being dropped


def refuses(queue: Queue, statement: str) -> bool:
    try:
        queue.conn.execute(statement.encode())
    except errors.InsufficientPrivilege:
        return True
    return False


# The catalog


@pytest.mark.every_server
def test_public_may_execute_no_function(queue: Queue) -> None:
    open_to_all = queue.rows(
        f"SELECT f.proname FROM ({FUNCTIONS}) AS f, aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) "
        "AS a WHERE a.grantee = 0"
    )

    assert open_to_all == []


@pytest.mark.every_server
def test_public_may_do_nothing_with_the_schema_its_tables_and_its_sequences(queue: Queue) -> None:
    relations = queue.rows(
        """
        SELECT c.relname FROM pg_class AS c, aclexplode(c.relacl) AS a
        WHERE c.relnamespace = 'messages'::regnamespace AND a.grantee = 0
        """
    )
    schema = queue.rows(
        "SELECT a.* FROM pg_namespace AS n, aclexplode(n.nspacl) AS a WHERE n.nspname = 'messages' AND a.grantee = 0"
    )
    columns = queue.rows(
        """
        SELECT a.attname FROM pg_attribute AS a, aclexplode(a.attacl) AS acl
        WHERE a.attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'messages'::regnamespace) AND acl.grantee = 0
        """
    )

    assert (relations, schema, columns) == ([], [], [])


def test_every_function_with_the_owners_rights_resolves_names_only_in_the_catalog(queue: Queue) -> None:
    definers = queue.rows(f"SELECT f.proname, f.proconfig FROM ({FUNCTIONS}) AS f WHERE f.prosecdef")

    assert len(definers) > 20
    assert [f.proname for f in definers if "search_path=pg_catalog, pg_temp" not in (f.proconfig or [])] == []


def test_every_function_that_a_role_may_call_has_the_owners_rights_except_the_listed_ones(queue: Queue) -> None:
    with_the_callers_rights = {
        # They read only the catalog, and with the rights that the caller has there.
        *(
            "doctor",
            "examine_server",
            "examine_connections",
            "examine_settings",
            "examine_holders",
            "examine_snapshots",
        ),
        "long_number_bytes",
        "now",
        "draw_xid",
        "oldest_running_xid",
        "notify",
        "new_message",
        "notify_inserted",
        "unpack_histogram",
        "is_printable",
        "is_paused",
        "live_state",
        "check_topic",
        "check_policy",
        "check_backoff",
        "check_breaker",
        "check_channel",
        "inherits_from",
        "patterns_of",
        "worker_of",
        "topic_regexps",
    }
    invokers = {row.proname for row in queue.rows(f"SELECT f.proname FROM ({FUNCTIONS}) AS f WHERE NOT f.prosecdef")}

    assert set().union(*MAY_CALL.values()) & invokers == with_the_callers_rights


# Functions that run with the search_path of the caller, because they are called so often that setting one would cost
# time.
FAST_PATHS = {
    *("new_message", "now", "draw_xid", "oldest_running_xid", "unpack_histogram", "is_printable", "is_paused"),
    *("inherits_from", "patterns_of", "topic_patterns", "live_state", "worker_of"),
}
# Keywords that come before a bracket, or represent operators that are looked up in the path.
KEYWORDS = {
    *("if", "and", "or", "not", "case", "when", "then", "else", "from", "select", "coalesce", "exists", "return"),
}
LOOKS_UP = r"\b(like|ilike|similar|in|between|distinct|nullif|any|some|all|using|overlaps|within|execute)\b"


def test_every_function_that_runs_with_the_path_of_its_caller_is_on_the_short_list(queue: Queue) -> None:
    """Functions that a role may call, that a trigger runs, or that a view, a check or a default needs.

    All can run with any path.
    """
    reachable = queue.rows(
        f"""
        SELECT f.proname FROM ({FUNCTIONS}) AS f
        WHERE 'search_path=pg_catalog, pg_temp' <> ALL (coalesce(f.proconfig, '{{}}'))
          AND (EXISTS (SELECT FROM aclexplode(f.proacl) AS a WHERE a.grantee <> f.proowner)
            OR EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgfoid = f.oid)
            OR EXISTS (
              SELECT FROM pg_depend AS d
              WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = f.oid AND d.classid <> 'pg_proc'::regclass))
        """
    )

    assert {row.proname for row in reachable} == FAST_PATHS


def unqualified(body: str) -> list[str]:
    """Return the names, types and operators of a body that are looked up in the caller's path."""
    bare = re.sub(r"--[^\n]*|'(?:[^']|'')*'", " ", body)
    # Neither a loop over an array nor the names of a row's columns look up anything.
    bare = re.sub(r"\bFOREACH \w+ IN ARRAY\b|\bAS \w+ \(\w+(, \w+)*\)", " ", bare)
    found = re.findall(LOOKS_UP, bare, re.IGNORECASE)
    bare = re.sub(r"OPERATOR\(pg_catalog\.[^)]+\)|::bigint\b(\[\])?|::pg_catalog\.|:=|\bcount\(\*\)", " ", bare)
    calls = re.findall(r"([\w.]+)\s*\(", bare)
    found += [
        name for name in calls if name.lower() not in KEYWORDS and not name.startswith(("pg_catalog.", "messages."))
    ]
    return found + re.findall(r"[-+/<>=~!@#%^&|`?]+|::\s*\w+|\w\s*\*", bare)


def test_functions_with_the_path_of_their_caller_resolve_no_name_in_it(queue: Queue) -> None:
    bodies = queue.rows(
        f"SELECT f.proname, f.prosrc FROM ({FUNCTIONS}) AS f WHERE f.proname = ANY (%s)", [list(FAST_PATHS)]
    )

    assert {row.proname: unqualified(row.prosrc) for row in bodies} == {name: [] for name in FAST_PATHS}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("SELECT pg_sequence_last_value('a') OPERATOR(pg_catalog.<) 1", ["pg_sequence_last_value"]),
        ("SELECT pg_catalog.date_part('epoch', 1) < 2", ["<"]),
        ("SELECT a::text", ["::text"]),
        ("SELECT a LIKE 'x' OR b IN (1)", ["LIKE", "IN", "IN"]),
        ("SELECT pg_catalog.now() -- it's < this\n", []),
        ("FOREACH v IN ARRAY f(1) LOOP", ["f"]),
        ("SELECT EXISTS (SELECT FROM unnest(a) AS t (b, c))", ["unnest"]),
    ],
)
def test_the_check_of_bodies_finds_names_that_need_the_path(body: str, found: list[str]) -> None:
    assert unqualified(body) == found


# Pairs of types without an operator in the catalog, which need a cast, and some with one.
TRAPS = [
    *[("<", "bigint", "double precision"), ("<", "bigint", "numeric"), ("<>", "name", "text"), ("<>", "text", "text")],
    *[("=", "numeric", "integer"), ("=", "messages.topic_name", "text"), (">", "messages.moment", "timestamptz")],
]
TRAP = """
    CREATE FUNCTION public.trap({left},
      {right}) RETURNS boolean LANGUAGE plpgsql
      AS $$ BEGIN RAISE 'caught as %', current_user; END $$;
    CREATE OPERATOR public.{operator} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = public.trap)
"""


@pytest.mark.parametrize("path", ["public", "public, pg_catalog"])
@pytest.mark.parametrize("victim", ["messages_publisher", "none"], ids=["a publisher", "a superuser"])
@pytest.mark.parametrize("armed", [False, True], ids=["no worker sleeps", "a worker sleeps"])
def test_an_operator_in_a_shared_schema_is_never_called_by_a_publish(
    own_queue: Queue, victim: str, armed: bool, path: str
) -> None:
    """It would run with the rights of the publisher. PostgreSQL prefers an exact operator of any schema to a cast."""
    if armed:
        own_queue.arm()
    with own_queue.conn.transaction(force_rollback=True):
        for operator, left, right in TRAPS:
            own_queue.conn.execute(TRAP.format(operator=operator, left=left, right=right).encode())
        own_queue.conn.execute(f"SET LOCAL search_path = {path}; SET LOCAL ROLE {victim}".encode())

        assert own_queue.value("INSERT INTO messages.message (topic, payload) VALUES ('t', '1') RETURNING id") > 0
        assert own_queue.value("SELECT id FROM messages.publish('t', '1')") > 0


@pytest.mark.every_server
def test_each_role_may_call_the_functions_listed_here_and_no_others(queue: Queue) -> None:
    may = f"SELECT f.proname FROM ({FUNCTIONS}) AS f WHERE has_function_privilege(%s, f.oid, 'EXECUTE')"

    assert {role: {row.proname for row in queue.rows(may, [f"messages_{role}"])} for role in ROLES} == MAY_CALL


def test_no_function_runs_dynamic_sql_except_for_a_partition_an_optional_table_or_all_columns(queue: Queue) -> None:
    # The name of a right, in quotes, is no statement.
    building = queue.rows(f"SELECT f.proname FROM ({FUNCTIONS}) AS f WHERE f.prosrc ~* '(?<!'')\\mexecute\\M'")

    assert {row.proname for row in building} == {
        "maintain_partitions",
        "is_exported",
        "purge_archive_pages",
        "prune_cron_history",
        "inherit_policies",
    }


@pytest.mark.every_server
def test_everything_belongs_to_the_owner_who_cannot_log_in(queue: Queue) -> None:
    owners = queue.rows(
        """
        SELECT relowner::regrole::text AS owner FROM pg_class WHERE relnamespace = 'messages'::regnamespace
        UNION SELECT proowner::regrole::text FROM pg_proc WHERE pronamespace = 'messages'::regnamespace
        UNION SELECT typowner::regrole::text FROM pg_type WHERE typnamespace = 'messages'::regnamespace
        UNION SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'messages'
        """
    )

    assert [row.owner for row in owners] == ["messages_owner"]
    owner = queue.row("SELECT * FROM pg_roles WHERE rolname = 'messages_owner'")
    assert not any(
        [
            owner.rolcanlogin,
            owner.rolsuper,
            owner.rolcreaterole,
            owner.rolcreatedb,
            owner.rolbypassrls,
            owner.rolreplication,
        ]
    )


@pytest.mark.every_server
@pytest.mark.parametrize("role", ROLES)
def test_no_role_can_log_in_or_become_another(queue: Queue, role: str) -> None:
    row = queue.row(
        "SELECT *, pg_has_role(rolname, 'messages_owner', 'MEMBER') AS is_owner FROM pg_roles WHERE rolname = %s",
        [f"messages_{role}"],
    )

    assert not any([row.rolcanlogin, row.rolsuper, row.rolcreaterole, row.is_owner])


@pytest.mark.every_server
def test_views_give_no_role_more_than_it_has(queue: Queue) -> None:
    views = queue.rows(
        "SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'messages'::regnamespace AND relkind = 'v'"
    )

    assert [v.relname for v in views if "security_invoker=true" not in (v.reloptions or [])] == []


# The publisher


def test_a_publisher_publishes_and_gets_the_id(as_role: Callable[[str], Queue]) -> None:
    assert as_role("publisher").publish() > 0


def test_a_publisher_sends_a_notification(
    as_role: Callable[[str], Queue], queue: Queue, listen: Callable[..., Any]
) -> None:
    listener = listen("new_message")
    queue.arm()

    published = as_role("publisher").publish()

    assert listener.received() == [str(published)]


def test_a_publisher_reads_no_content_not_even_its_own(as_role: Callable[[str], Queue]) -> None:
    publisher = as_role("publisher")
    publisher.publish()

    insert = "INSERT INTO messages.message (topic, payload) VALUES ('t', '1') RETURNING"
    for column in ("payload", "body", "headers", "state", "history", "claim_id", "locked_by", "*"):
        assert refuses(publisher, f"SELECT {column} FROM messages.message"), column
        assert refuses(publisher, f"{insert} {column}"), column


def test_a_publisher_cannot_set_columns_that_belong_to_the_queue(as_role: Callable[[str], Queue]) -> None:
    publisher = as_role("publisher")
    lock = ("claim_id", "locked_by", "locked_at", "lock_expires_at")
    for column in (*lock, "attempts", "history", "state", "progress", "created_at", "redriven_from", "original_topic"):
        insert = f"INSERT INTO messages.message (topic, payload, {column}) VALUES ('t', '1', NULL)"
        assert refuses(publisher, insert), column


def test_a_publisher_reads_only_the_batches_that_it_created(queue: Queue, as_role: Callable[[str], Queue]) -> None:
    publisher = as_role("publisher")
    own, of_another = publisher.call("create_batch"), queue.call("create_batch")
    publisher.publish(batch_id=of_another)

    found = publisher.rows(
        "SELECT p.id FROM unnest(%s) AS b (id) CROSS JOIN LATERAL messages.batch_progress(b.id) AS p",
        [[own, of_another]],
    )

    assert [row.id for row in found] == [own]


def test_a_publisher_cannot_choose_the_id(as_role: Callable[[str], Queue]) -> None:
    statement = "INSERT INTO messages.message (id, topic, payload) OVERRIDING SYSTEM VALUE VALUES (1, 't', '1')"

    assert refuses(as_role("publisher"), statement)


def test_a_publisher_can_only_publish(as_role: Callable[[str], Queue]) -> None:
    publisher = as_role("publisher")
    for statement in (
        "UPDATE messages.message SET priority = 0",
        "DELETE FROM messages.message",
        "TRUNCATE messages.message",
        "SELECT id FROM messages.message_archive",
        "SELECT * FROM messages.claim('w', ARRAY['t'], 1)",
        "SELECT messages.complete(ARRAY[1], ARRAY[1])",
        "SELECT messages.cancel(ARRAY[1])",
        "UPDATE messages.topic SET notify = 'always'",
        "SELECT backoff FROM messages.topic",
        "UPDATE messages.sleeper SET armed_until = 'epoch'",
        "SELECT nextval('messages.armed_until')",
    ):
        assert refuses(publisher, statement), statement


# Settings, which every role can write

SETTINGS = {
    # With these, functions pass values to each other within a transaction. A role that writes one only misleads itself:
    # its rights are checked independently.
    *("depth_left", "on_conflict", "end_events", "propagated", "channel_rounds", "has_topic_lock"),
    # Only for roles that may create objects in the schema: see values/test_values.py.
    "fake_now",
    # The person for whom an operator acts.
    "actor",
}


def test_no_function_reads_a_setting_except_those_listed_here(queue: Queue) -> None:
    bodies = [row.prosrc for row in queue.rows(f"SELECT f.prosrc FROM ({FUNCTIONS}) AS f")]

    assert set(re.findall(r"(?:current_setting|set_config)\(\s*'messages\.(\w+)'", " ".join(bodies))) == SETTINGS


@pytest.mark.parametrize("setting", [*sorted(SETTINGS), "unpoliced"])
def test_no_setting_of_a_publisher_switches_a_policy_off(
    as_role: Callable[[str], Queue], queue: Queue, setting: str
) -> None:
    queue.policy("*", accept_publishes=False)
    queue.policy("t", accept_publishes=True, max_payload_bytes=10, ttl="1 hour", max_depth=2, on_full="drop")
    publisher = as_role("publisher")

    for value in ("t", '{"t": 1000000}', "1", "ignore", "2000-01-01"):
        publisher.value("SELECT set_config(%s, %s, false)", [f"messages.{setting}", value])
        publish_what_is_refused(publisher)

        rows = queue.rows(
            "SELECT topic, octet_length(payload::text) AS bytes, expires_at - now() AS ttl FROM messages.message"
        )
        assert len(rows) <= 2, value
        assert all(row.topic == "t" and row.bytes <= 10 and row.ttl <= timedelta(hours=1, minutes=1) for row in rows)
        queue.call("cancel", queue.ids())


def publish_what_is_refused(publisher: Queue) -> None:
    """Publish what is too large or goes elsewhere, and more than there is room for."""
    for statement in (
        "INSERT INTO messages.message (topic, payload) VALUES ('t', to_jsonb(repeat('x', 100)))",
        "SELECT * FROM messages.publish('t', to_jsonb(repeat('x', 100)))",
        "INSERT INTO messages.message (topic, payload) VALUES ('t.dlq', '1')",
        "INSERT INTO messages.message (topic, payload) VALUES ('elsewhere', '1')",
        "INSERT INTO messages.message (topic, payload) SELECT 't', '1' FROM generate_series(1, 5)",
    ):
        with suppress(psycopg.Error):
            publisher.conn.execute(statement.encode())


# The worker


@pytest.mark.every_server
def test_a_worker_does_all_of_its_work(as_role: Callable[[str], Queue], queue: Queue) -> None:
    queue.publish_many(6, max_attempts=2)
    worker = as_role("worker")
    worker.call("register_worker", "w", "host", 1, "1.0", ["t"], 10)
    claimed = worker.claim()

    settled = [
        worker.settle("heartbeat", claimed),
        worker.settle("cancelled_ids", claimed),
        worker.settle("set_progress", claimed[:1], [Jsonb({"done": 1})]),
        worker.settle("complete", claimed[:1]),
        worker.settle("reject", claimed[1:2], ["bad"]),
        worker.settle("fail", claimed[2:3], ["boom"]),
        worker.settle("retry", claimed[3:4], ["boom"]),
        worker.settle("defer", claimed[4:5]),
        worker.settle("release", claimed[5:6]),
        worker.call("release_orphaned", "w", []),
    ]
    worker.settle("count_runs", claimed)
    worker.arm("w")
    worker.call("draw_xid")
    worker.call("next_due", ["t"])
    worker.call("disarm", "w")
    worker.call("lower_armed_until")
    worker.call("touch_worker", "w", {})
    ticked = worker.rows("SELECT * FROM messages.tick('daemon')")
    worker.call("unregister_worker", "w")

    assert settled == [[]] * 10
    assert -1 not in [row.count for row in ticked]


def test_a_worker_writes_no_table(as_role: Callable[[str], Queue], queue: Queue) -> None:
    worker = as_role("worker")
    for (table,) in [*queue.rows(TABLES), ("migration",)]:
        assert refuses(worker, f"DELETE FROM messages.{table}"), table
        assert refuses(worker, f"TRUNCATE messages.{table}"), table


def test_a_worker_can_only_do_its_work(as_role: Callable[[str], Queue]) -> None:
    worker = as_role("worker")
    for statement in (
        "SELECT payload FROM messages.message",
        "SELECT payload FROM messages.message_archive",
        "INSERT INTO messages.message (topic, payload) VALUES ('t', '1')",
        "SELECT messages.cancel(ARRAY[1])",
        "SELECT * FROM messages.redrive(ARRAY[1])",
        "SELECT messages.archive(ARRAY[1], ARRAY[1], 'success', NULL, NULL, NULL)",
        "SELECT messages.return_attempts(ARRAY[1], ARRAY[1], NULL, NULL, NULL, NULL)",
        "SELECT messages.expire_locks()",
        "SELECT messages.maintain_partitions()",
    ):
        assert refuses(worker, statement), statement


def test_a_temp_table_with_the_name_of_a_table_of_the_queue_is_never_used(
    as_role: Callable[[str], Queue], queue: Queue
) -> None:
    published = queue.publish()
    worker = as_role("worker")
    worker.conn.execute("CREATE TEMP TABLE message (LIKE pg_class); CREATE TEMP TABLE message_archive (id int)")
    worker.conn.execute("SET search_path = pg_temp, messages, public")

    claimed = worker.claim()

    assert [c.id for c in claimed] == [published]
    assert worker.settle("complete", claimed) == []
    assert queue.archived(published).result == "success"


def test_a_users_own_operator_in_front_of_the_catalog_is_never_called(
    as_role: Callable[[str], Queue], queue: Queue
) -> None:
    """It would run with the owner's rights."""
    queue.publish()
    worker = as_role("worker")
    worker.conn.execute(
        """
        CREATE FUNCTION pg_temp.trap(text,
          text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'caught as %', current_user; END $$;
        CREATE OPERATOR pg_temp.= (LEFTARG = text, RIGHTARG = text, FUNCTION = pg_temp.trap);
        CREATE FUNCTION pg_temp.nextval(regclass) RETURNS bigint LANGUAGE plpgsql
        AS $$ BEGIN RAISE 'caught as %', current_user; END $$;
        SET search_path = pg_temp, pg_catalog
        """
    )

    assert worker.settle("complete", worker.claim()) == []


def test_a_publisher_publishes_its_staged_rows_in_bulk_and_sees_none_of_others(as_role: Callable[[str], Queue]) -> None:
    publisher = as_role("publisher")
    attempt = publisher.call("begin_staging", "j")
    with publisher.conn.cursor().copy("COPY messages.publish_stage (attempt, topic, payload) FROM STDIN") as copy:
        copy.write_row((attempt, "t", "1"))

    done = publisher.row("SELECT * FROM messages.publish_staged('j', %s, %s)", [[attempt], [1]])

    assert done.published == 1
    assert publisher.row("SELECT published FROM messages.job_result('j')").published == 1
    for table in ("publish_stage", "publish_attempt", "publish_job", "publish_rejected"):
        assert refuses(publisher, f"SELECT * FROM messages.{table}")
        assert refuses(publisher, f"DELETE FROM messages.{table}")
    assert refuses(publisher, "INSERT INTO messages.publish_job (job) VALUES ('k')")


@pytest.mark.parametrize("role", ["worker", "operator", "analyst"])
def test_a_role_can_read_each_row_of_the_views_that_it_may_read(
    queue: Queue, as_role: Callable[[str], Queue], role: str
) -> None:
    queue.policy("mail.*", max_concurrency=5)
    queue.policy("mail.new", paused_at=datetime.now(UTC))
    queue.publish("mail.old")
    queue.settle("fail", queue.claim("mail.old"), ["boom"])
    queue.publish("mail.new", channel="c", batch_id=queue.call("create_batch"))
    queue.schedule(topic="mail.new")
    queue.conn.execute("INSERT INTO messages.channel (topic, channel, concurrency) VALUES ('mail.new', 'c', 1)")
    queue.conn.execute("INSERT INTO messages.alert_sink (name, type) VALUES ('ops', 'webhook')")
    queue.conn.execute(
        "INSERT INTO messages.worker (name, host, pid, version, topics, concurrency, status)"
        " VALUES ('w', 'h', 1, '0', '{mail.*,mail.new}', 1, '{}')"
    )
    columns = queue.rows(READABLE_COLUMNS, [f"messages_{role}"])

    assert {view: queue.value(f"SELECT count(*) FROM messages.{view}") > 0 for view, _ in columns} == dict.fromkeys(
        [view for view, _ in columns], True
    )
    reader = as_role(role)
    assert [view for view, readable in columns if not reader.rows(f"SELECT {readable} FROM messages.{view}")] == []


@pytest.mark.parametrize("role", ["worker", "operator"])
def test_a_role_lists_the_schedules_that_it_may_read_by_a_kept_plan_too(
    queue: Queue, as_role: Callable[[str], Queue], role: str
) -> None:
    queue.schedule("nightly")
    conn = as_role(role).conn
    conn.prepare_threshold = 0
    conn.execute("SET plan_cache_mode = force_generic_plan")

    assert [each.name for each in run(conn, find_schedules())] == ["nightly"]
    assert [each.name for each in run(conn, find_schedules(topics=["t", "other.*"]))] == ["nightly"]


# Operator, analyst, maintainer, a login without a role


@pytest.mark.every_server
def test_an_operator_sees_everything_and_runs_every_operation(as_role: Callable[[str], Queue], queue: Queue) -> None:
    dead, waiting = queue.publish("a", payload={"n": 1}), queue.publish("b")
    queue.settle("fail", queue.claim("a"), ["boom"])
    operator = as_role("operator")

    operator.policy("t", max_attempts=3, backoff={"kind": "none"}, notify="always")

    assert operator.row("SELECT payload FROM messages.dead").payload == {"n": 1}
    assert operator.call("cancel", [waiting]) == [waiting]
    assert [row.archived_id for row in operator.rows("SELECT * FROM messages.redrive(%s)", [[dead]])] == [dead]
    assert [row.topic for row in operator.rows("SELECT * FROM messages.stats()")] == ["a", "t"]
    assert queue.value("SELECT max_attempts FROM messages.topic WHERE topic = 't'") == 3


def test_an_operator_changes_messages_only_through_functions(as_role: Callable[[str], Queue]) -> None:
    operator = as_role("operator")
    for statement in (
        "DELETE FROM messages.message",
        "UPDATE messages.message_archive SET result = 'success'",
        "INSERT INTO messages.message (topic, payload) VALUES ('t', '1')",
        "SELECT * FROM messages.claim('w', ARRAY['t'], 1)",
        "DELETE FROM messages.migration",
    ):
        assert refuses(operator, statement), statement


def test_the_check_of_policies_applies_to_an_operator_too(as_role: Callable[[str], Queue]) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="backoff of topic t: kind is missing"):
        as_role("operator").policy("t", backoff={"base": "1s"})


def test_an_analyst_sees_events_but_no_content(as_role: Callable[[str], Queue], queue: Queue) -> None:
    queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])
    queue.publish()
    analyst = as_role("analyst")

    assert [row.state for row in analyst.rows("SELECT * FROM messages.state ORDER BY id")] == ["failed", "ready"]
    assert [row.result for row in analyst.rows("SELECT * FROM messages.ended")] == ["failed"]
    assert [row.topic for row in analyst.rows("SELECT * FROM messages.stats()")] == ["t"]
    for table in ("message", "message_archive"):
        for column in ("payload", "body", "headers", "state"):
            assert refuses(analyst, f"SELECT {column} FROM messages.{table}")
    assert refuses(analyst, "SELECT output FROM messages.message_archive")
    assert refuses(analyst, "SELECT messages.tick()")
    assert refuses(analyst, "SELECT messages.cancel(ARRAY[1])")


def test_a_maintainer_runs_the_maintenance_and_sees_nothing(as_role: Callable[[str], Queue], queue: Queue) -> None:
    queue.publish()
    queue.claim(lock_duration="0 s")
    maintainer = as_role("maintainer")

    assert [
        row.count for row in maintainer.rows("SELECT count FROM messages.tick('cron') WHERE task = 'expire_locks'")
    ] == [1]
    assert refuses(maintainer, "SELECT id FROM messages.message")
    assert refuses(maintainer, "SELECT * FROM messages.claim('w', ARRAY['t'], 1)")


def test_a_login_without_a_role_can_do_nothing(as_role: Callable[[str], Queue]) -> None:
    no_role = as_role("no_role")

    assert refuses(no_role, "INSERT INTO messages.message (topic, payload) VALUES ('t', '1')")
    assert refuses(no_role, "SELECT messages.now()")
    assert refuses(no_role, "SELECT * FROM messages.topic")


@pytest.mark.every_server
def test_days_that_are_created_later_have_the_same_rights_as_the_first(
    queue: Queue, as_role: Callable[[str], Queue]
) -> None:
    queue.later("1 day")
    queue.call("maintain_partitions")
    (newest,) = queue.rows(
        "SELECT max(relname) AS name FROM pg_class WHERE relname ~ '^message_archive_2' AND relkind = 'r'"
    )

    assert [role for role in ROLES if not refuses(as_role(role), f"DELETE FROM messages.{newest.name}")] == []
    assert (
        queue.value("SELECT relowner::regrole::text FROM pg_class WHERE relname = %s", [newest.name])
        == "messages_owner"
    )


@pytest.mark.every_server
@pytest.mark.parametrize("lock_duration", ["9000 years", "-60 years"])
def test_an_error_of_a_worker_shows_no_payload(
    as_role: Callable[[str], Queue], queue: Queue, lock_duration: str
) -> None:
    """A row that violates a CHECK is shown in the error and in the server's log, with all that the owner may read."""
    queue.publish(payload={"secret": "s3cret"})
    worker = as_role("worker")

    with pytest.raises(psycopg.DatabaseError) as caught:
        worker.claim(lock_duration=lock_duration)

    assert "s3cret" not in str(caught.value)
