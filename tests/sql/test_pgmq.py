"""sql/pgmq.sql: the functions of pgmq over the tables here, called by its published client."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pgmq import PGMQueue
from psycopg import errors

from pgrouse.install.schema import sql_root
from tests.server.deadline import eventually
from tests.server.postgres import Database

# The client tells how its own versions differ.
pytestmark = pytest.mark.filterwarnings("ignore:list_queues:UserWarning")
HELLO = {"hello": "world"}


def install(database: Database) -> None:
    with database.connect() as conn:
        conn.execute((sql_root() / "pgmq.sql").read_bytes())


@pytest.fixture
def pgmq(own_database: Database) -> Iterator[PGMQueue]:
    """A client, with a queue q."""
    install(own_database)
    client = PGMQueue(conn_string=own_database.dsn, init_extension=False, pool_size=2)
    client.create_queue("q")
    yield client
    client.close()


def one(database: Database, statement: str, *values: Any) -> Any:
    with database.connect() as conn:
        row = conn.execute(statement, values).fetchone()
    assert row is not None
    return row[0]


def test_a_message_is_read_once_within_its_time_out(pgmq: PGMQueue) -> None:
    sent = pgmq.send("q", HELLO, headers={"trace": "1"})

    message = pgmq.read("q", vt=20)

    assert (message.msg_id, message.read_ct, message.message, message.headers) == (sent, 1, HELLO, {"trace": "1"})
    assert 18 < (message.vt - message.enqueued_at).total_seconds() < 60
    assert pgmq.read("q") is None


def test_it_returns_by_itself_after_the_time_out_and_the_reads_are_counted(pgmq: PGMQueue) -> None:
    sent = pgmq.send("q", HELLO)
    assert pgmq.read("q", vt=1).read_ct == 1

    [again] = eventually(lambda: pgmq.read_batch("q", vt=60))

    assert (again.msg_id, again.read_ct) == (sent, 2)


def test_a_batch_keeps_its_order(pgmq: PGMQueue) -> None:
    sent = pgmq.send_batch("q", [{"n": n} for n in range(5)])

    read = pgmq.read_batch("q", vt=20, batch_size=4)

    assert [message.msg_id for message in read] == sent[:4]
    assert [message.message["n"] for message in read] == [0, 1, 2, 3]


@pytest.mark.parametrize("delay", [3600, datetime.now(UTC) + timedelta(hours=1)], ids=["seconds", "time"])
def test_a_delayed_message_is_not_read_before_its_time_unless_that_is_changed(pgmq: PGMQueue, delay: Any) -> None:
    sent = pgmq.send("q", HELLO, delay=delay)
    assert pgmq.read("q") is None

    assert pgmq.set_vt("q", sent, 0).msg_id == sent

    assert pgmq.read("q").msg_id == sent


def test_an_archived_message_is_a_success_of_its_topic(pgmq: PGMQueue, own_database: Database) -> None:
    sent = pgmq.send_batch("q", [HELLO, HELLO, HELLO])
    pgmq.read("q")

    assert pgmq.archive("q", sent[0]) is True
    assert pgmq.archive_batch("q", sent) == sent[1:]

    assert pgmq.archive("q", sent[0]) is False
    assert one(own_database, "SELECT array_agg(result::text) FROM messages.message_archive") == ["success"] * 3


def test_a_deleted_or_popped_message_leaves_no_trace(pgmq: PGMQueue, own_database: Database) -> None:
    sent = pgmq.send_batch("q", [HELLO, HELLO, HELLO, HELLO])

    assert pgmq.pop("q").msg_id == sent[0]
    assert pgmq.delete("q", sent[1]) is True
    assert pgmq.delete_batch("q", sent) == sent[2:]

    assert pgmq.delete("q", sent[1]) is False
    assert (
        one(own_database, "SELECT (SELECT count(*) FROM messages.message) + count(*) FROM messages.message_archive")
        == 0
    )
    assert one(own_database, "SELECT count(*) FROM messages.audit") == 0


def test_another_queue_and_what_a_daemon_runs_are_not_touched(pgmq: PGMQueue, own_database: Database) -> None:
    pgmq.create_queue("other")
    other, running = pgmq.send("other", HELLO), pgmq.send("q", HELLO)
    one(own_database, "SELECT count(*) FROM messages.claim('daemon', '{q}', 1)")

    ends = [end("q", each) for end in (pgmq.delete, pgmq.archive) for each in (other, running)]

    assert ends == [False] * 4
    assert pgmq.set_vt("q", running, 0) is None
    assert one(own_database, "SELECT count(*) FROM messages.message") == 2


def test_what_waits_for_another_message_is_not_touched(pgmq: PGMQueue, own_database: Database) -> None:
    first = pgmq.send("q", HELLO)
    later = one(own_database, "SELECT id FROM messages.publish('q', '1', p_after => ARRAY[%s]::bigint[])", first)

    assert pgmq.set_vt("q", later, 0) is None
    assert (pgmq.delete("q", later), pgmq.archive("q", later)) == (False, False)

    pgmq.archive("q", first)
    assert pgmq.read("q").msg_id == later


def test_no_policy_of_its_topic_holds_a_read_up(pgmq: PGMQueue, own_database: Database) -> None:
    one(
        own_database,
        "INSERT INTO messages.topic (topic, lock_duration, strict_lock, max_attempts) VALUES ('q', '100 ms', true, 1) RETURNING 1",
    )
    sent = pgmq.send("q", HELLO)

    # The client takes a vt of 0 for its default.
    read = "SELECT read_ct FROM pgmq.read('q', 0, 1)"
    assert [one(own_database, read) for _ in range(3)] == [1, 2, 3]
    assert pgmq.archive("q", sent) is True


def test_a_poll_without_a_bound_looks_once(pgmq: PGMQueue, own_database: Database) -> None:
    assert one(own_database, "SELECT count(*) FROM pgmq.read_with_poll('q', 1, 1, NULL, NULL)") == 0


def test_a_read_with_poll_gets_what_is_sent_meanwhile(pgmq: PGMQueue, own_database: Database) -> None:
    assert pgmq.read_with_poll("q", max_poll_seconds=0, poll_interval_ms=10) == []
    pgmq.send("q", HELLO, delay=1)

    [message] = pgmq.read_with_poll("q", max_poll_seconds=60, poll_interval_ms=10)

    assert message.message == HELLO


def test_queues_are_listed_measured_purged_and_dropped(pgmq: PGMQueue) -> None:
    pgmq.create_partitioned_queue("parts", 1000, 10000)
    pgmq.send_batch("q", [HELLO, HELLO])
    pgmq.archive("q", pgmq.send("q", HELLO))
    pgmq.send("q", HELLO, delay=60)

    assert [(queue.queue_name, queue.is_partitioned) for queue in pgmq.list_queues()] == [("parts", True), ("q", False)]
    measured = {each.queue_name: each for each in pgmq.metrics_all()}["q"]
    assert (measured.queue_length, measured.queue_visible_length, measured.total_messages) == (3, 2, 4)
    assert pgmq.purge("q") == 3
    assert (pgmq.drop_queue("q"), pgmq.drop_queue("q")) == (True, False)
    assert [queue.queue_name for queue in pgmq.list_queues()] == ["parts"]


def test_what_does_not_exist_or_is_not_supported_is_told(pgmq: PGMQueue) -> None:
    with pytest.raises(errors.UndefinedTable, match=r"queue gone does not exist.*\n.*pgmq\.create\('gone'\)"):
        pgmq.send("gone", HELLO)
    with pytest.raises(errors.RaiseException, match="queue name is too long"):
        pgmq.validate_queue_name("a" * 48)
    with pytest.raises(errors.FeatureNotSupported, match="condition"):
        pgmq.read("q", conditional={"a": 1})
    with pytest.raises(errors.InvalidParameterValue):
        pgmq.read_batch("q", batch_size=0)


def test_listeners_are_notified_at_most_once_in_an_interval(pgmq: PGMQueue, own_database: Database) -> None:
    pgmq.enable_notify("q", throttle_interval_ms=3_600_000)
    listener = own_database.connect()
    listener.execute('LISTEN "pgmq.q_q.INSERT"')

    pgmq.send("q", HELLO)
    pgmq.send("q", HELLO)

    assert len(list(listener.notifies(timeout=60, stop_after=1))) == 1
    assert list(listener.notifies(timeout=0.2)) == []
    assert [(each.queue_name, each.throttle_interval_ms) for each in pgmq.list_notify_throttles()] == [("q", 3_600_000)]
    pgmq.disable_notify("q")
    assert pgmq.list_notify_throttles() == []


def test_what_a_program_inserts_is_read_and_what_pgmq_sends_is_claimed(pgmq: PGMQueue, own_database: Database) -> None:
    inserted = one(own_database, "INSERT INTO messages.message (topic, payload) VALUES ('q', '7') RETURNING id")
    assert pgmq.read("q").msg_id == inserted

    sent = pgmq.send("q", HELLO)

    assert one(own_database, "SELECT id FROM messages.claim('daemon', '{q}', 9)") == sent


def test_a_crash_of_a_reader_before_its_commit_leaves_the_message_visible(
    pgmq: PGMQueue, own_database: Database
) -> None:
    sent = pgmq.send("q", HELLO)
    conn = psycopg.connect(own_database.dsn)
    assert len(conn.execute("SELECT pgmq.read('q', 60, 1)").fetchall()) == 1
    conn.close()

    [message] = eventually(lambda: pgmq.read_batch("q"))

    assert (message.msg_id, message.read_ct) == (sent, 1)


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("messages_publisher", {"send"}),
        ("messages_worker", {"read", "pop", "archive", "delete", "set_vt"}),
        ("messages_analyst", {"metrics"}),
        (
            "messages_operator",
            {"send", "read", "pop", "archive", "delete", "set_vt", "metrics", "create", "purge_queue"},
        ),
        ("stranger", set()),
    ],
)
def test_a_role_may_what_it_may_without_pgmq(pgmq: PGMQueue, own_database: Database, role: str, may: set[str]) -> None:
    calls = {
        "send": "pgmq.send('q', '1')",
        "read": "pgmq.read('q', 0, 1)",
        "pop": "pgmq.pop('q')",
        "archive": "pgmq.archive('q', 1)",
        "delete": "pgmq.delete('q', 1)",
        "set_vt": "pgmq.set_vt('q', 1, 1)",
        "metrics": "pgmq.metrics('q')",
        "create": "pgmq.create('another')",
        "purge_queue": "pgmq.purge_queue('q')",
    }
    with own_database.connect() as conn, conn.transaction(force_rollback=True):
        if role == "stranger":
            conn.execute("CREATE ROLE stranger")
        conn.execute(f"SET ROLE {role}")
        allowed = {name for name, call in calls.items() if _is_allowed(conn, call)}

    assert allowed == may


def _is_allowed(conn: psycopg.Connection[Any], call: str) -> bool:
    try:
        with conn.transaction():
            conn.execute(f"SELECT {call}")
    except errors.InsufficientPrivilege:
        return False
    return True


def test_no_function_belongs_to_a_superuser_or_trusts_the_search_path(pgmq: PGMQueue, own_database: Database) -> None:
    install(own_database)  # again, as after an upgrade
    with own_database.connect() as conn:
        loose = conn.execute("""
            SELECT p.oid::regprocedure::text FROM pg_proc AS p JOIN pg_roles AS r ON r.oid = p.proowner
            WHERE p.pronamespace = 'pgmq'::regnamespace
              AND (r.rolsuper OR NOT 'search_path=pg_catalog, pg_temp' = ANY (coalesce(p.proconfig, '{}')))
        """).fetchall()

    assert loose == []
    assert [queue.queue_name for queue in pgmq.list_queues()] == ["q"]


def test_a_queue_that_is_read_counts_as_worked(pgmq: PGMQueue, own_database: Database) -> None:
    pgmq.send("q", HELLO)
    assert one(own_database, "SELECT count(*) FROM messages.unhandled_topics()") == 1

    pgmq.read("q", vt=0)

    assert one(own_database, "SELECT count(*) FROM messages.unhandled_topics()") == 0
