"""Four times the rows are about four times the work, whatever statistics say.

In a statement over many rows nothing is compared with each other.

The work is counted, not timed: see tests/sql/work.py.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from tests.server.postgres import Database
from tests.sql.queue import Queue
from tests.sql.work import Work, work

SQL = Path(__file__).resolve().parents[2] / "sql"

# Versions of one row are many before they fill pages.
SMALL, ONE_KEY, TIMES = 100, 120, 4
# Trees have another level, and a walk over pages begins somewhere; to compare all rows with each other would be 16
# times the work.
MOST = 6

UNIQUE, SAME, PAIRS = "n::text", "'same'", "(n / 2)::text"
POLICIES = [
    "",
    "key_ttl = '1 hour'",
    "max_depth = 1000000, on_full = 'drop'",
    "max_payload_bytes = 100000",
    "max_payload_bytes = 100",
]
STATISTICS = ["none", "of an empty stage", "of one row"]


def stage(queue: Queue, count: int, key: str, on_conflict: str | None, topic: str = "'t'") -> UUID:
    attempt: UUID = queue.call("begin_staging", "j")
    queue.conn.execute(
        "INSERT INTO messages.publish_stage (attempt, topic, key, payload, on_conflict) "
        f"SELECT %s, {topic}, {key}, '1', %s FROM generate_series(1, %s) AS n",
        [attempt, on_conflict, count],
    )
    return attempt


def publish(queue: Queue, count: int, key: str, on_conflict: str | None, topic: str = "'t'") -> Work:
    """Publish staged rows; return the work. Nothing of it stays."""
    with queue.conn.transaction(force_rollback=True):
        attempt = stage(queue, count, key, on_conflict, topic)
        return work(queue, "SELECT messages.publish_staged('j', %s, %s::bigint[])", [[attempt], [count]])


MODES = [None, "ignore", "replace", "append"]


@pytest.mark.newest
@pytest.mark.parametrize("key", [UNIQUE, PAIRS])
@pytest.mark.parametrize("on_conflict", MODES)
def test_publishing_keys_in_bulk_grows_with_their_number(queue: Queue, on_conflict: str | None, key: str) -> None:
    less, more = (publish(queue, SMALL * times, key, on_conflict) for times in (1, TIMES))

    assert more.is_within(MOST, less), (less, more)


DIFFERENT = [*((None, policy) for policy in POLICIES), *((on_conflict, "") for on_conflict in MODES[1:])]


@pytest.mark.parametrize(
    ("on_conflict", "policy"),
    [
        pytest.param(on_conflict, policy, marks=() if (on_conflict, policy) in DIFFERENT else pytest.mark.long)
        for on_conflict in MODES
        for policy in POLICIES
    ],
)
def test_publishing_one_key_many_times_grows_with_the_number_of_rows_whatever_policy_its_topic_has(
    queue: Queue, on_conflict: str | None, policy: str
) -> None:
    if policy:
        insert, update = (
            "INSERT INTO messages.topic (topic) VALUES ('t')",
            f"UPDATE messages.topic SET {policy} WHERE topic = 't'",
        )
        queue.conn.execute(f"{insert}; {update}")

    less, more = (publish(queue, ONE_KEY * times, SAME, on_conflict) for times in (1, TIMES))

    assert more.is_within(MOST, less), (less, more)


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("waiting", ["", UNIQUE])
def test_publishing_keys_in_bulk_grows_with_their_number_whatever_statistics_say(
    queue: Queue, statistics: str, waiting: str
) -> None:
    if waiting:
        queue.conn.execute(
            f"INSERT INTO messages.message (topic, key, payload) SELECT 't', {waiting}, '1' "
            f"FROM generate_series(1, {SMALL * TIMES}) AS n"
        )
    if statistics != "none":
        stage(queue, int(statistics == "of one row"), UNIQUE, None)
        queue.conn.execute("ANALYZE messages.publish_stage")

    less, more = (publish(queue, SMALL * times, UNIQUE, None) for times in (1, TIMES))

    assert more.is_within(MOST, less), (less, more)


@pytest.mark.parametrize("key", ["NULL", UNIQUE])
def test_publishing_to_many_topics_in_bulk_grows_with_the_number_of_rows(queue: Queue, key: str) -> None:
    queue.conn.execute("UPDATE messages.topic SET max_payload_bytes = 1000 WHERE topic = '*'")

    less, more = (publish(queue, SMALL * times, key, None, topic="'t' || n") for times in (1, TIMES))

    assert more.is_within(MOST, less), (less, more)


ENDED = """
    INSERT INTO messages.message_archive (
      id, topic, priority, payload, created_at, available_at, attempts, claim_id, result)
    SELECT n, 't', 5, '{}', now(), now(), 1, n, 'failed' FROM generate_series(1, %s) AS n
"""
COPIES = """
    INSERT INTO messages.message (id, topic, payload, origin_id, original_topic, dlq_moved_at) OVERRIDING SYSTEM VALUE
    SELECT 1000000 + n, 't.dlq', '{}', n, 't', now() FROM generate_series(1, %s) AS n
"""
LIVE = """
    INSERT INTO messages.message (id, topic, payload) OVERRIDING SYSTEM VALUE
    SELECT n, 't', '{}' FROM generate_series(1, %s) AS n
"""
RUNNING = """
    INSERT INTO messages.message (id, topic, payload, attempts, runs, claim_id, locked_by, locked_at, lock_expires_at)
    OVERRIDING SYSTEM VALUE
    SELECT n, 't', '{}', 1, 1, n, 'w', now(), now() + interval '1 hour' FROM generate_series(1, %s) AS n
"""
KEYS = "UPDATE messages.message SET key = id::text WHERE id <= %s"
ENDED_KEYS = "UPDATE messages.message_archive SET key = id::text WHERE id <= %s"
# Others with the same keys, which are ready.
KEYED = """
    INSERT INTO messages.message (id, topic, key, payload) OVERRIDING SYSTEM VALUE
    SELECT 1500000 + n, 't', n::text, '{}' FROM generate_series(1, %s) AS n
"""
BLOCKED = """
    SELECT messages.publish('t', '1', p_after => ARRAY(SELECT n FROM generate_series(1, %s) AS n))
"""
IDS = "ARRAY(SELECT n::bigint FROM generate_series(1, {count}) AS n)"
# With the last of them not held any more.
HELD = f"{IDS}, ARRAY(SELECT nullif(n, {{count}})::bigint FROM generate_series(1, {{count}}) AS n)"
PROGRESS = "ARRAY(SELECT '1'::jsonb FROM generate_series(1, {count}))"
WHY = "ARRAY(SELECT 'why' FROM generate_series(1, {count}))"
# What is there before, and what is called.
CALLS = {
    "redrive": (ENDED, f"messages.redrive({IDS})"),
    "requeue_dead_letters": (
        ENDED + ";" + COPIES,
        "messages.requeue_dead_letters(ARRAY(SELECT 1000000 + n::bigint FROM generate_series(1, {count}) AS n))",
    ),
    "preview_redrive": (ENDED, f"messages.preview_redrive({IDS})"),
    "redrive_where": (ENDED, "messages.redrive_where(p_topic => 't', p_limit => {count})"),
    "redrive with keys": (ENDED + ";" + ENDED_KEYS + ";" + KEYED, f"messages.redrive({IDS})"),
    "skip": (LIVE, f"messages.skip({IDS})"),
    "delete": (LIVE, f"messages.delete({IDS})"),
    "claim": (LIVE, "messages.claim('w', ARRAY['t'], {count})"),
    "cancel": (LIVE, f"messages.cancel({IDS})"),
    "retry_now": (LIVE, f"messages.retry_now({IDS})"),
    "wait_for_many": (LIVE, f"messages.wait_for_many({IDS}, '1 s')"),
    "wait_for_many of ended ones": (ENDED, f"messages.wait_for_many({IDS})"),
    "complete": (RUNNING, f"messages.complete({HELD})"),
    "fail": (RUNNING, f"messages.fail({HELD}, {WHY})"),
    "retry": (RUNNING, f"messages.retry({HELD}, {WHY})"),
    "reject": (RUNNING, f"messages.reject({HELD}, {WHY})"),
    "release": (RUNNING, f"messages.release({HELD})"),
    "release with keys": (RUNNING + ";" + KEYS + ";" + KEYED, f"messages.release({HELD})"),
    "defer": (RUNNING, f"messages.defer({HELD})"),
    "count_runs": (RUNNING, f"messages.count_runs({HELD})"),
    "set_progress": (RUNNING, f"messages.set_progress({HELD}, {PROGRESS})"),
    "read_claimed": (RUNNING, f"messages.read_claimed({HELD})"),
    "cancelled_ids": (ENDED, f"messages.cancelled_ids({HELD})"),
    "completion_states": (RUNNING, f"messages.completion_states({HELD})"),
    "completion_states of ended ones": (ENDED, f"messages.completion_states({HELD})"),
    "results": (ENDED, f"messages.results({HELD})"),
    "heartbeat": (RUNNING, f"messages.heartbeat({HELD})"),
    "release_orphaned": (RUNNING, f"messages.release_orphaned('w', {IDS})"),
    "publish after many": (LIVE, f"messages.publish('t', '1', p_after => {IDS})"),
    "ends that others wait for": (LIVE + ";" + BLOCKED, f"messages.propagate_ends({IDS}, true)"),
}


def growth(queue: Queue, name: str) -> tuple[Work, Work]:
    """Return the work of a call for a few messages, and for more of them. Nothing of it stays."""
    before, function = CALLS[name]

    def call(count: int) -> Work:
        with queue.conn.transaction(force_rollback=True):
            queue.conn.execute("SELECT setval('messages.message_id_seq', 100000)")  # LIVE chooses its ids
            for statement in before.split(";"):
                queue.conn.execute(statement, [count])
            return work(queue, f"SELECT * FROM {function.format(count=count)}")

    return call(SMALL), call(SMALL * TIMES)


@pytest.mark.newest
@pytest.mark.parametrize("name", CALLS)
def test_a_call_for_many_messages_grows_with_their_number(queue: Queue, name: str) -> None:
    less, more = growth(queue, name)

    assert more.is_within(MOST, less), (less, more)


@pytest.mark.long
@pytest.mark.newest
def test_a_call_for_many_messages_grows_with_their_number_though_statistics_say_that_there_are_none(
    own_database: Database,
) -> None:
    """After VACUUM of a table whose rows are all gone PostgreSQL expects one row, until the next one."""
    conn = own_database.connect()
    tables = "messages.message", "messages.message_archive", "messages.dependency", "messages.blocked_message"
    conn.execute("ALTER TABLE messages.message ALTER id RESTART WITH 2000000")
    for statement in (ENDED, COPIES, LIVE, BLOCKED):
        conn.execute(statement, [10 * SMALL])
    for table in tables:
        conn.execute(f"DELETE FROM {table}")
        conn.execute(f"VACUUM (TRUNCATE off, ANALYZE) {table}")

    # Each with plans of its own.
    grown = {name: growth(Queue(own_database.connect()), name) for name in CALLS}

    assert " ".join(name for name, (less, more) in grown.items() if not more.is_within(MOST, less)) == ""


def test_no_statement_searches_an_array_of_a_caller_from_its_beginning_for_each_row() -> None:
    # PostgreSQL hashes what NOT IN (SELECT …) asks for, but not an array that a kept plan has as a parameter.
    # The others are lists of columns and of states,
    # and the topics of a worker, in which one topic is looked up.
    few = ["audit_change.sql", "explain_waiting.sql", "find_messages.sql", "search_topic.sql"]
    found = {file.name for file in SQL.glob("*/*.sql") for line in file.read_text().splitlines() if "<> ALL (" in line}

    assert sorted(found) == few
