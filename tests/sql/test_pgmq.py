"""sql/pgmq.sql: the functions of pgmq over the tables here, called by its published client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pgmq import PGMQueue
from psycopg import errors

from pgrouse.database.install.schema import sql_root
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres

# The client tells how its own versions differ.
pytestmark = pytest.mark.filterwarnings("ignore:list_queues:UserWarning")
HELLO = {"hello": "world"}
WAITS_FOR_ADVISORY_LOCK = """
    SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
    WHERE l.locktype = 'advisory' AND NOT l.granted AND d.datname = current_database()"""
READS = [f"read{way}{poll}" for way in ("", "_grouped", "_grouped_rr", "_grouped_head") for poll in ("", "_with_poll")]


def install(database: Database) -> None:
    with database.connect() as conn:
        conn.execute((sql_root() / "pgmq.sql").read_bytes())


@pytest.fixture(scope="module")
def installed(server: Postgres) -> Iterator[str]:
    """The name of a database with the functions of pgmq, to copy from."""
    with server.new_database(template=server.migrated) as database:
        install(database)
        yield database.name


@pytest.fixture
def own_database(server: Postgres, installed: str) -> Iterator[Database]:
    """A database for this test alone, with the functions of pgmq."""
    with server.new_database(template=installed) as database:
        yield database


@pytest.fixture
def pgmq(own_database: Database) -> Iterator[PGMQueue]:
    """A client, with a queue q."""
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
        "INSERT INTO messages.topic (topic, lock_duration, strict_lock, max_attempts) "
        "VALUES ('q', '100 ms', true, 1) RETURNING 1",
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


def test_a_read_with_a_condition_hands_out_what_contains_it_and_leaves_the_others(
    pgmq: PGMQueue, own_database: Database
) -> None:
    pgmq.send_batch("q", [{"kind": "mail", "n": n} for n in range(2)] + [{"kind": "call", "n": 2}, 7])

    found = pgmq.read("q", qty=10, conditional={"kind": "mail"})
    nothing = pgmq.read_with_poll("q", max_poll_seconds=0, conditional={"kind": "mail"})
    one(own_database, "UPDATE messages.topic SET paused_at = now() WHERE topic = '*' RETURNING 1")
    while_paused = pgmq.read("q", conditional={"kind": "call"})
    one(own_database, "UPDATE messages.topic SET paused_at = NULL WHERE topic = '*' RETURNING 1")

    assert [(each.message["n"], each.read_ct) for each in found] == [(0, 1), (1, 1)]
    assert (nothing or [], while_paused) == ([], None)
    assert [each.message for each in pgmq.read_batch("q", batch_size=10)] == [{"kind": "call", "n": 2}, 7]


def test_a_read_with_a_condition_skips_what_another_transaction_has_locked(
    pgmq: PGMQueue, own_database: Database
) -> None:
    first, second = pgmq.send_batch("q", [{"n": 1}, {"n": 1}])
    with own_database.connect() as other, other.transaction():
        other.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [first])

        assert [each.msg_id for each in pgmq.read("q", qty=2, conditional={"n": 1})] == [second]


def test_what_does_not_exist_is_told(pgmq: PGMQueue) -> None:
    with pytest.raises(errors.UndefinedTable, match=r"queue gone does not exist.*\n.*pgmq\.create\('gone'\)"):
        pgmq.send("gone", HELLO)
    with pytest.raises(errors.RaiseException, match="queue name is too long"):
        pgmq.validate_queue_name("a" * 48)
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


def send_to_groups(pgmq: PGMQueue, groups: str) -> None:
    """Send a message to each group: its number in the group, from 1."""
    for nth, group in enumerate(groups):
        number = groups[: nth + 1].count(group)
        pgmq.send("q", {"is": f"{group}{number}"}, headers=None if group == "-" else {"x-pgmq-group": group})


def names(read: list[Any]) -> list[str]:
    return [message.message["is"] for message in read]


def read_by_sql(conn: psycopg.Connection[Any], way: str, qty: int, vt: int = 60) -> list[str]:
    rows = conn.execute(f"SELECT message ->> 'is' FROM pgmq.{way}('q', {vt}, {qty})").fetchall()
    return [name for (name,) in rows]


def test_a_grouped_read_takes_groups_as_its_name_says(pgmq: PGMQueue, own_database: Database) -> None:
    send_to_groups(pgmq, "bba-ab-")
    expected = {
        ("read_grouped", 2): "b1 b2",
        ("read_grouped", 5): "b1 b2 b3 a1 a2",
        ("read_grouped_rr", 2): "b1 a1",
        ("read_grouped_rr", 5): "b1 a1 -1 b2 a2",
        ("read_grouped_rr", 99): "b1 a1 -1 b2 a2 -2 b3",
        ("read_grouped_head", 2): "b1 a1",
        ("read_grouped_head", 99): "b1 a1 -1",
    }
    conn = own_database.connect()

    def read(way: str, qty: int) -> str:
        with conn.transaction(force_rollback=True):
            return " ".join(read_by_sql(conn, way, qty))

    assert {(way, qty): read(way, qty) for way, qty in expected} == expected


def test_the_client_reads_groups(pgmq: PGMQueue) -> None:
    pgmq.create_fifo_index("q")
    pgmq.create_fifo_indexes_all()
    send_to_groups(pgmq, "aaabbb")

    assert names(pgmq.read_grouped("q", vt=60, qty=1)) == ["a1"]
    # The group waits for its first message, other groups do not.
    assert names(pgmq.read_grouped_rr("q", vt=60, qty=9)) == ["b1", "b2", "b3"]
    assert pgmq.read_grouped_rr_with_poll("q", max_poll_seconds=0, poll_interval_ms=10) == []

    pgmq.archive("q", 1)
    [first, _] = pgmq.read_grouped_with_poll("q", vt=60, qty=9, max_poll_seconds=60, poll_interval_ms=10)
    assert (first.message, first.read_ct, first.headers) == ({"is": "a2"}, 1, {"x-pgmq-group": "a"})
    assert 50 < (first.vt - first.last_read_at).total_seconds() <= 60


@pytest.mark.parametrize("way", ["read_grouped", "read_grouped_rr", "read_grouped_head"])
def test_a_group_is_read_again_from_its_first_message_when_that_returns(
    pgmq: PGMQueue, own_database: Database, way: str
) -> None:
    send_to_groups(pgmq, "aab")
    conn = own_database.connect()
    assert read_by_sql(conn, way, 1, vt=0) == ["a1"]

    assert read_by_sql(conn, way, 1) == ["a1"]

    assert one(own_database, "SELECT read_ct FROM pgmq.set_vt('q', 1, 0)") == 2
    assert read_by_sql(conn, way, 1) == ["a1"]


def test_nothing_of_a_group_is_read_behind_what_is_invisible_runs_or_waits_for_others(
    pgmq: PGMQueue, own_database: Database
) -> None:
    send_to_groups(pgmq, "aaabbccd")
    with own_database.connect() as conn:
        conn.execute("SELECT pgmq.set_vt('q', ARRAY[2, 4], 60)")
        conn.execute("UPDATE messages.message SET priority = 0 WHERE id = 6")
        assert conn.execute("SELECT id FROM messages.claim('daemon', '{q}', 1)").fetchall() == [(6,)]
        publish = (
            'SELECT messages.publish(\'q\', \'{"is": "d2"}\', p_headers => \'{"x-pgmq-group": "d"}\', p_after => '
            "'{7}')"
        )
        conn.execute(publish)

        assert [read_by_sql(conn, way, 99, vt=0) for way in ("read_grouped", "read_grouped_rr")] == [["a1", "d1"]] * 2


def test_a_channel_keeps_its_own_order_and_what_has_expired_blocks_no_group(
    pgmq: PGMQueue, own_database: Database
) -> None:
    with own_database.connect() as conn:
        conn.execute("INSERT INTO messages.message (topic, channel, payload) VALUES ('q', 'c', '{}')")
        conn.execute("INSERT INTO messages.message (topic, expires_at, payload) VALUES ('q', now(), '{}')")
        send_to_groups(pgmq, "-")

        assert read_by_sql(conn, "read_grouped", 9) == ["-1"]


@pytest.mark.parametrize("way", ["read_grouped", "read_grouped_rr", "read_grouped_head"])
def test_two_readers_never_have_the_same_group(pgmq: PGMQueue, own_database: Database, way: str) -> None:
    send_to_groups(pgmq, "aabb")
    first, second = psycopg.connect(own_database.dsn), own_database.connect()

    assert read_by_sql(first, way, 1) == ["a1"]
    # As many as the group has: they do not count.
    others = read_by_sql(second, way, 2)
    first.commit()

    assert others == (["b1"] if way == "read_grouped_head" else ["b1", "b2"])
    assert read_by_sql(second, way, 99) == []
    first.close()


def test_a_reader_does_not_wait_for_another_one_that_has_not_committed(pgmq: PGMQueue, own_database: Database) -> None:
    send_to_groups(pgmq, "ab")
    first, second = psycopg.connect(own_database.dsn), own_database.connect()
    second.execute("SET statement_timeout = '30s'")
    assert read_by_sql(first, "read", 1) == ["a1"]

    assert read_by_sql(second, "read", 9) == ["b1"]

    first.close()


def test_a_group_whose_reader_crashed_is_read_from_its_first_message(pgmq: PGMQueue, own_database: Database) -> None:
    send_to_groups(pgmq, "aa")
    first, second = psycopg.connect(own_database.dsn), own_database.connect()
    assert read_by_sql(first, "read_grouped", 1) == ["a1"]
    assert read_by_sql(second, "read_grouped", 9) == []

    first.rollback()

    assert read_by_sql(second, "read_grouped", 9) == ["a1", "a2"]
    first.close()


def test_nothing_is_read_behind_what_another_transaction_is_about_to_end(
    pgmq: PGMQueue, own_database: Database
) -> None:
    send_to_groups(pgmq, "aaab")
    other, conn = psycopg.connect(own_database.dsn), own_database.connect()
    other.execute("SELECT pgmq.delete('q', 2)")

    assert read_by_sql(conn, "read_grouped", 9, vt=0) == ["a1", "b1"]

    other.commit()
    assert read_by_sql(conn, "read_grouped", 9) == ["a1", "a3", "b1"]
    other.close()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("read_grouped_rr('q', 60, 1)", []),
        ("set_vt('q', 2, 60)", ["a1"]),
        ("delete('q', 1)", []),
        ("read('q', 0, 1)", []),
    ],
)
def test_a_reader_that_looked_before_a_change_reads_nothing_behind_it(
    pgmq: PGMQueue, own_database: Database, change: str, expected: list[str]
) -> None:
    """It has seen the three messages, and waits for the moment in which the change is committed."""
    send_to_groups(pgmq, "aaa")
    changing, reading = own_database.connect(), own_database.connect()
    changing.execute("""
        CREATE FUNCTION public.wait_once() RETURNS bigint LANGUAGE plpgsql AS $$
        BEGIN
          IF current_setting('test.waits', true) = 'yes' THEN
            PERFORM set_config('test.waits', 'no', false), pg_advisory_xact_lock(1);
          END IF;
          RETURN 0;
        END
        $$""")
    source = one(own_database, "SELECT pg_get_functiondef('pgmq.members'::regproc)")
    changing.execute(source.replace("m.id,", "m.id + public.wait_once(),", 1))
    changing.execute("SELECT pg_advisory_lock(1)")
    reading.execute("SET test.waits = 'yes'")
    with ThreadPoolExecutor() as pool:
        late = pool.submit(read_by_sql, reading, "read_grouped_rr", 9)
        eventually(lambda: one(own_database, WAITS_FOR_ADVISORY_LOCK))
        changing.execute(f"SELECT pgmq.{change}")
        changing.execute("SELECT pg_advisory_unlock(1)")

        assert late.result(60) == expected


@pytest.mark.parametrize("way", ["read_grouped", "read_grouped_rr", "read_grouped_head"])
def test_many_readers_at_once_keep_the_order_of_each_group(pgmq: PGMQueue, own_database: Database, way: str) -> None:
    send_to_groups(pgmq, "abcd" * 12)
    read: list[str] = []
    busy: set[str] = set()
    mistakes: list[list[str]] = []
    until = time.monotonic() + 120

    def work(_: int) -> None:
        with own_database.connect() as conn:
            while len(read) < 48 and time.monotonic() < until:
                batch = read_by_sql(conn, way, 3)
                groups = {name[0] for name in batch}
                if busy & groups:
                    mistakes.append(batch)
                busy.update(groups)
                read.extend(batch)
                # As long as a job might take: a reader that got the same group would be noticed.
                time.sleep(0.02 if batch else 0)
                busy.difference_update(groups)
                ended = "SELECT pgmq.delete('q', array_agg(id)) FROM messages.message WHERE payload ->> 'is' = ANY (%s)"
                conn.execute(ended, [batch])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))

    assert mistakes == []
    for group in "abcd":
        assert [name for name in read if name[0] == group] == [f"{group}{nth}" for nth in range(1, 13)]


@pytest.mark.parametrize("way", ["read", "read_grouped"])
def test_a_poll_in_vain_does_not_hold_up_the_claims_of_a_limited_topic(
    own_database: Database, pgmq: PGMQueue, way: str
) -> None:
    polling, claiming = own_database.connect(), own_database.connect()
    claiming.execute("INSERT INTO messages.topic (topic, max_concurrency) VALUES ('q', 5)")
    pgmq.send("q", HELLO, delay=60)
    with polling.transaction():
        assert polling.execute(f"SELECT * FROM pgmq.{way}_with_poll('q', 30, 1, 0)").fetchall() == []
        with own_database.connect() as conn:
            conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('q', '{}')")

        claimed = claiming.execute("SELECT id FROM messages.claim('w', ARRAY['q'], 1)").fetchall()

    assert len(claimed) == 1


def test_a_poll_ends_what_has_no_attempts_left(own_database: Database, pgmq: PGMQueue) -> None:
    sent = pgmq.send("q", HELLO)
    one(own_database, "UPDATE messages.topic SET max_attempts = 1 WHERE topic = '*' RETURNING 1")
    one(own_database, "UPDATE messages.message SET attempts = 1 RETURNING 1")

    assert not pgmq.read_with_poll("q", max_poll_seconds=0)

    assert one(own_database, "SELECT result FROM messages.message_archive WHERE id = %s", sent) == "failed"


def test_a_queue_is_dropped_while_a_reader_has_a_transaction_open(own_database: Database, pgmq: PGMQueue) -> None:
    pgmq.read("q")
    one(own_database, "UPDATE messages.worker SET seen_at = seen_at - interval '1 min' RETURNING 1")
    with own_database.connect() as reading, own_database.connect() as dropping, reading.transaction():
        assert reading.execute("SELECT * FROM pgmq.read('q', 0, 1)").fetchall() == []
        dropping.execute("SET lock_timeout = '5s'")

        assert dropping.execute("SELECT pgmq.drop_queue('q')").fetchone() == (True,)


def test_pauses_and_limits_of_the_topic_hold_for_grouped_reads(pgmq: PGMQueue, own_database: Database) -> None:
    send_to_groups(pgmq, "abc")
    with own_database.connect() as conn:
        conn.execute("INSERT INTO messages.topic (topic, dequeue_rate, burst) VALUES ('q', 0.001, 2)")
        conn.execute("SELECT messages.pause('q')")
        assert read_by_sql(conn, "read_grouped", 9) == []
        conn.execute("SELECT messages.resume('q')")

        assert read_by_sql(conn, "read_grouped", 9) == ["a1", "b1"]
        assert read_by_sql(conn, "read_grouped", 9) == []


PATTERNS = {
    "orders.created": (["orders.created"], ["orders.created.eu", "orders_created", "ordersxcreated"]),
    "orders.*": (["orders.created"], ["orders", "orders.created.eu", "my.orders.created"]),
    "*.created": (["orders.created"], ["created", "eu.orders.created"]),
    "orders.#": (["orders.created", "orders.created.eu"], ["orders", "my.orders.created"]),
    "#.eu": (["orders.eu", "orders.created.eu"], ["orders.created"]),
    "*.created.#": (["orders.created.eu.de"], ["orders.created", "eu.orders.created.de"]),
    "#": (["orders", "orders.created.eu"], []),
    "a-b_C.*": (["a-b_C.1"], ["A-b_C.1"]),
}


def test_a_pattern_matches(pgmq: PGMQueue) -> None:
    for pattern, (matched, others) in PATTERNS.items():
        pgmq.bind_topic(pattern, "q")

        assert (pattern, [key for key in matched + others if pgmq.test_routing(key)]) == (pattern, matched)
        pgmq.unbind_topic(pattern, "q")


def test_what_is_sent_to_a_key_is_sent_once_to_each_queue_that_matches(pgmq: PGMQueue) -> None:
    pgmq.create_queue("other")
    for pattern, queue in [("orders.*", "q"), ("orders.#", "q"), ("#", "other"), ("mail.#", "other")]:
        pgmq.bind_topic(pattern, queue)
    # A second time changes nothing.
    pgmq.bind_topic("mail.#", "other")

    assert pgmq.send_topic("orders.created", HELLO, headers={"trace": "1"}) == 2
    assert pgmq.send_topic("orders.created", HELLO, delay=3600) == 2
    sent = pgmq.send_batch_topic("mail.sent", [HELLO, {"n": 2}], headers=[{"trace": "2"}, {}], delay=0)

    assert [each.queue_name for each in sent] == ["other", "other"]
    assert [(each.message, each.headers) for each in pgmq.read_batch("q", batch_size=9)] == [(HELLO, {"trace": "1"})]
    assert [each.msg_id for each in pgmq.read_batch("other", batch_size=9)][1:] == [each.msg_id for each in sent]


def test_bindings_are_listed_and_end_with_their_queue(pgmq: PGMQueue) -> None:
    pgmq.create_queue("other")
    pgmq.bind_topic("a.*", "q")
    pgmq.bind_topic("#", "other")

    assert [(each.pattern, each.queue_name) for each in pgmq.list_topic_bindings()] == [("#", "other"), ("a.*", "q")]
    [mine] = pgmq.list_topic_bindings("q")
    assert (mine.pattern, mine.compiled_regex) == ("a.*", r"^a\.[^.]+$")
    assert (pgmq.unbind_topic("a.*", "q"), pgmq.unbind_topic("a.*", "q")) == (True, False)
    pgmq.drop_queue("other")
    assert (pgmq.list_topic_bindings(), pgmq.send_topic("a.b", HELLO)) == ([], 0)


def test_invalid_keys_and_patterns_are_refused(pgmq: PGMQueue) -> None:
    for words in ("", ".a", "a.", "a..b", "a b", "a!", "a\n", "ä", "a" * 256, "'; DROP SCHEMA pgmq; --"):
        # The client makes false of an error.
        assert (words, pgmq.validate_routing_key(words), pgmq.validate_topic_pattern(words)) == (words, False, False)
        with pytest.raises(errors.RaiseException, match=r"^routing_key '"):
            pgmq.send_topic(words, HELLO)
        with pytest.raises(errors.RaiseException, match=r"^routing_key '"):
            pgmq.send_batch_topic(words, [HELLO])
        with pytest.raises(errors.RaiseException, match=r"^pattern '"):
            pgmq.bind_topic(words, "q")
        with pytest.raises(errors.RaiseException, match=r"^routing_key '"):
            pgmq.test_routing(words)


def test_wildcards_are_for_patterns_and_stand_alone(pgmq: PGMQueue) -> None:
    for wrong in ("a.**", "##", "a.*#", "#*"):
        with pytest.raises(errors.RaiseException, match="two wildcards in a row"):
            pgmq.bind_topic(wrong, "q")
    with pytest.raises(errors.RaiseException, match="has characters other than"):
        pgmq.send_topic("a.*", HELLO)
    assert (pgmq.validate_routing_key("a" * 255), pgmq.validate_topic_pattern("a-b_C.*.#")) == (True, True)
    with pytest.raises(errors.UndefinedTable, match="queue gone does not exist"):
        pgmq.bind_topic("a", "gone")
    with pytest.raises(errors.RaiseException, match="delay is -1"):
        pgmq.send_topic("a", HELLO, delay=-1)


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("messages_publisher", {"send", "send_topic", "validate_routing_key"}),
        ("messages_worker", {*READS, "pop", "archive", "delete", "set_vt"}),
        ("messages_analyst", {"metrics", "test_routing"}),
        (
            "messages_operator",
            {
                *READS,
                "send",
                "send_topic",
                "pop",
                "archive",
                "delete",
                "set_vt",
                "metrics",
                "validate_routing_key",
                "test_routing",
                "create",
                "purge_queue",
                "bind_topic",
            },
        ),
        ("stranger", set()),
    ],
)
def test_a_role_may_what_it_may_without_pgmq(pgmq: PGMQueue, own_database: Database, role: str, may: set[str]) -> None:
    calls = {
        "send": "pgmq.send('q', '1', 0)",
        "send_topic": "pgmq.send_topic('a', '1')",
        **{name: f"pgmq.{name}('q', 0, 1{', 0' if name.endswith('poll') else ''})" for name in READS},
        "pop": "pgmq.pop('q')",
        "archive": "pgmq.archive('q', 1)",
        "delete": "pgmq.delete('q', 1)",
        "set_vt": "pgmq.set_vt('q', 1, 1)",
        "metrics": "pgmq.metrics('q')",
        "validate_routing_key": "pgmq.validate_routing_key('a')",
        "test_routing": "pgmq.test_routing('a')",
        "bind_topic": "pgmq.bind_topic('a', 'q')",
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
