"""What an outsider, a publisher or a worker can lock.

The queue continues while each of them holds all of it in an open transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from pgrouse.client.apply import policy_change
from pgrouse.config.policy.policy_settings import TopicPolicy
from pgrouse.config.policy.topic_policy import DesiredPolicy
from pgrouse.database.install import schema
from pyspark_pgrouse.claim.claim_client import ClaimClient
from pyspark_pgrouse.lake.cursor import held
from tests.server.postgres import Database
from tests.sql.queue import Background, Queue

# Every key of an advisory lock that any version took: they are in the source, and any role may lock them.
PUBLIC_KEYS = (
    *(
        "messages.armed_until",
        "messages.awaited_flag",
        "messages.policy_flag",
        "messages.tick",
        "messages.update_conditions",
        "messages.topic",
    ),
    *("messages.subscription", "messages.low_water", "messages.topic t", "messages.channel t"),
    *("pgrouse export default", "pgrouse consumer loader"),
)
MIGRATION_KEY = 0x7067726F757365
# Every lock on every table: those that the role may not take are skipped. Any role may lock the view pg_settings, since
# any may update it.
LOCK_ALL = b"""
    DO $$
    DECLARE
      v_name name;
      v_mode text;
    BEGIN
      FOR v_name IN SELECT format('%I.%I', n.nspname, c.relname)
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p', 'v') AND n.nspname IN ('messages', 'pg_catalog') ORDER BY 1
      LOOP
        FOREACH v_mode IN ARRAY ARRAY['ACCESS SHARE', 'ROW SHARE', 'ROW EXCLUSIVE', 'SHARE UPDATE EXCLUSIVE', 'SHARE',
          'SHARE ROW EXCLUSIVE',
          'EXCLUSIVE', 'ACCESS EXCLUSIVE']
        LOOP
          BEGIN
            EXECUTE format('LOCK TABLE %s IN %s MODE', v_name, v_mode);
          EXCEPTION WHEN insufficient_privilege OR wrong_object_type THEN
            NULL;
          END;
        END LOOP;
      END LOOP;
    END
    $$
"""
TAKEN = """
    SELECT n.nspname || '.' || c.relname AS name, l.mode
    FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE l.pid = pg_backend_pid() AND l.granted AND c.relkind IN ('r', 'p', 'v') AND c.relname <> 'pg_settings'
"""
# A lock that conflicts with a held one makes this fail instead of waiting without end. Nothing below waits at all.
AT_MOST = "SET lock_timeout = '5s'"


@dataclass(frozen=True)
class Prepared:
    """The queue of a test, with the messages and policies that the actions need.

    Attributes:
        outsider: a connection of a role that may connect and nothing else.
        publisher: a connection of a messages_publisher.
        worker: a connection of a messages_worker.
    """

    database: Database
    queue: Queue
    outsider: Queue
    publisher: Queue
    worker: Queue


@pytest.fixture
def prepared(database: Database) -> Iterator[Prepared]:
    queue = Queue(database.connect())
    roles = {role: f"{role}_{database.name}" for role in ("outsider", "publisher", "worker")}
    for role, name in roles.items():
        queue.conn.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(name)))
        if role != "outsider":
            granted = sql.Identifier(f"messages_{role}")
            queue.conn.execute(sql.SQL("GRANT {} TO {}").format(granted, sql.Identifier(name)))
    queue.conn.execute("SELECT set_config('lock_timeout', '5s', false)")
    # Rows that a first use creates exist already: otherwise each action would have its own reason to write.
    queue.policy("t", max_concurrency=100, dequeue_rate=1000, channel_concurrency=100)
    yield Prepared(database, queue, *(_as(database, roles[role]) for role in ("outsider", "publisher", "worker")))
    database.disconnect()
    with database.server.admin() as admin:
        for name in roles.values():
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def _as(database: Database, role: str) -> Queue:
    conn = database.connect()
    conn.execute(sql.SQL("SET SESSION AUTHORIZATION {}").format(sql.Identifier(role)))
    return Queue(conn)


# Actions that must continue. Each is done by a superuser, who waits for locks like any role.


def arm(prepared: Prepared) -> None:
    prepared.queue.arm()
    assert prepared.queue.value("SELECT pg_sequence_last_value('messages.armed_until') > 1000")


def tick(prepared: Prepared) -> None:
    did = {row.task: row.count for row in prepared.queue.rows("SELECT * FROM messages.tick('hand')")}
    assert len(did) > 10
    assert min(did.values()) >= 0
    assert prepared.queue.value("SELECT messages.update_conditions() >= 0")


def claim_of_a_limited_topic(prepared: Prepared) -> None:
    published = prepared.queue.publish("t")
    assert published in [c.id for c in prepared.queue.claim("t")]


def claim_of_limited_channels(prepared: Prepared) -> None:
    published = [prepared.queue.publish("t", channel=channel) for channel in ("a", "b")]
    assert set(published) <= {c.id for c in prepared.queue.claim("t")}


def claim_of_a_new_topic(prepared: Prepared) -> None:
    prepared.queue.publish("new")
    prepared.queue.claim_one("new")


def publish_after(prepared: Prepared) -> None:
    first = prepared.queue.publish("other")
    assert prepared.queue.send(topic="other", after=[first]).outcome == "inserted"


def keep_step(prepared: Prepared) -> None:
    prepared.queue.publish("other")
    claimed = prepared.queue.claim("other")[-1]
    assert prepared.queue.call("save_step", claimed.id, claimed.claim_id, "s", {"a": 1}) is True


def wait_for(prepared: Prepared) -> None:
    (found,) = prepared.queue.rows("SELECT * FROM messages.wait_for(%s)", [prepared.queue.publish("other")])
    assert found.result is None


def complete(prepared: Prepared) -> None:
    prepared.queue.publish("other")
    assert prepared.queue.settle("complete", prepared.queue.claim("other")) == []


def pause(prepared: Prepared) -> None:
    prepared.queue.rows("SELECT * FROM messages.pause('other', 'why')")


def change_a_policy(prepared: Prepared) -> None:
    prepared.queue.policy("other", ttl="1 day", notify="always")


def subscribe(prepared: Prepared) -> None:
    prepared.queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('source', 'sink')")


def apply_a_configuration(prepared: Prepared) -> None:
    wanted = DesiredPolicy(TopicPolicy(max_attempts=7))
    assert len(policy_change.apply(prepared.queue.conn, {"another": wanted})) == 1


def advance_an_export(prepared: Prepared) -> None:
    with held(prepared.queue.conn, "default"):
        pass


def lock_a_consumer(prepared: Prepared) -> None:
    assert ClaimClient(prepared.queue.conn, "loader").take_name(0) is True


def migrate(prepared: Prepared) -> None:
    assert schema.migrate(prepared.queue.conn) == []


ACTIONS: tuple[Callable[[Prepared], None], ...] = (
    *(arm, tick, claim_of_a_limited_topic, claim_of_limited_channels, claim_of_a_new_topic, publish_after, keep_step),
    *(wait_for, complete, pause, change_a_policy, subscribe, apply_a_configuration, advance_an_export),
    *(lock_a_consumer, migrate),
)


def act(prepared: Prepared) -> None:
    """Do all, and name the one that fails."""
    for action in ACTIONS:
        try:
            action(prepared)
        except (AssertionError, psycopg.Error) as error:
            error.add_note(f"while it was to {action.__name__}")
            raise


def test_no_function_takes_an_advisory_lock_except_the_sign_of_life_of_a_session(prepared: Prepared) -> None:
    """Its key is random.

    No session waits for it, and a session that holds it elsewhere does not count: messages.is_lease_alive.
    """
    found = prepared.queue.rows(
        """
        SELECT p.proname AS name FROM pg_proc AS p
        WHERE p.pronamespace = 'messages'::regnamespace AND p.prosrc ~* 'pg_(try_)?advisory'
        """
    )

    assert {row.name for row in found} == {"take_lease", "release_lease"}


def test_each_action_continues_while_an_outsider_holds_every_advisory_lock_that_it_can_know(
    prepared: Prepared,
) -> None:
    for key in PUBLIC_KEYS:
        prepared.outsider.value("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [key])
    prepared.outsider.value("SELECT pg_advisory_lock(%s)", [MIGRATION_KEY])

    act(prepared)
    assert prepared.queue.rows("SELECT FROM messages.low_water WHERE topic = 'new'")


def lock_all_tables(queue: Queue) -> set[tuple[str, str]]:
    """Take, in the open transaction, every lock on a table that this role may take; return which."""
    queue.conn.execute(LOCK_ALL)
    return {(row.name, row.mode) for row in queue.rows(TAKEN)}


@pytest.mark.every_server
def test_each_action_continues_while_an_outsider_holds_every_table_that_it_may_lock(
    prepared: Prepared,
) -> None:
    with prepared.outsider.conn.transaction(force_rollback=True):
        taken = lock_all_tables(prepared.outsider)

        assert {mode for _, mode in taken} == {"AccessShareLock"}
        assert not [name for name, _ in taken if name.startswith("messages.")]
        act(prepared)


def test_each_action_continues_while_a_publisher_holds_its_locks_and_has_published_to_another_topic(
    prepared: Prepared,
) -> None:
    prepared.queue.policy("own", max_depth=100, publish_rate=100, key_ttl="1 day")
    mine = prepared.publisher
    with mine.conn.transaction(force_rollback=True):
        taken = lock_all_tables(mine)
        first = mine.send(topic="own", key="k").id
        mine.send(topic="own", after=[first])
        mine.conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('plain', '1')")

        assert {name for name, mode in taken if mode != "AccessShareLock"} <= {"messages.publish_stage"}
        assert {mode for _, mode in taken} <= {"AccessShareLock", "RowShareLock", "RowExclusiveLock"}
        act(prepared)


def test_each_action_continues_while_a_worker_holds_its_locks_and_has_armed_and_claimed(
    prepared: Prepared,
) -> None:
    """A worker that claims from a limited topic, or ticks, and stays open blocks that.

    These are tests of messages.lock_holders.
    """
    prepared.queue.publish_many(3, "own")
    mine = prepared.worker
    with mine.conn.transaction(force_rollback=True):
        taken = lock_all_tables(mine)
        mine.arm("his own")
        claimed = mine.claim("own", limit=2)
        mine.call("save_step", claimed[0].id, claimed[0].claim_id, "s", {"a": 1})
        mine.settle("complete", claimed[1:])

        assert {mode for _, mode in taken} == {"AccessShareLock"}
        act(prepared)


@contextmanager
def _open(queue: Queue) -> Iterator[None]:
    with queue.conn.transaction(force_rollback=True):
        yield


def test_a_worker_with_an_open_tick_blocks_the_maintenance_and_the_doctor_names_it(prepared: Prepared) -> None:
    mine = prepared.worker
    with _open(mine):
        mine.rows("SELECT * FROM messages.tick('daemon')")
        assert prepared.queue.rows("SELECT * FROM messages.tick('hand')") == []
        prepared.queue.later("2 minutes")
        findings = prepared.queue.rows("SELECT * FROM messages.doctor() WHERE code = 'row_lock' AND level = 'fail'")

    assert any("the maintenance" in row.what for row in findings)
    assert {row.fix for row in findings} == {f"SELECT pg_terminate_backend({mine.conn.info.backend_pid});"}


def test_a_worker_with_an_open_claim_blocks_only_that_topic_and_explain_names_it(prepared: Prepared) -> None:
    prepared.queue.publish_many(3, "t")
    prepared.queue.claim("t", limit=1)
    prepared.queue.publish("other")
    waiting = prepared.queue.publish("t")
    mine = prepared.worker
    with _open(mine):
        mine.claim("t", limit=1)
        assert {c.topic for c in prepared.queue.claim("t", "other")} == {"other"}
        prepared.queue.later("1 minute")
        reasons = prepared.queue.rows("SELECT * FROM messages.explain(%s)", [waiting])

    pid = mine.conn.info.backend_pid
    assert [row.detail["pid"] for row in reasons if row.code == "locked"] == [pid]


@pytest.mark.parametrize("limit", [{"max_depth": 100}, {"publish_rate": 1000}])
def test_an_open_publisher_blocks_the_others_of_a_limited_topic_for_a_bounded_time(
    prepared: Prepared, limit: dict[str, int]
) -> None:
    prepared.queue.policy("limited", **limit)
    prepared.queue.conn.execute("SET lock_timeout = '100ms'")  # the default is ten seconds
    mine = prepared.publisher
    insert = b"INSERT INTO messages.message (topic, payload) VALUES ('limited', '1')"
    with _open(mine):
        mine.conn.execute(insert)
        with pytest.raises(errors.LockNotAvailable):
            prepared.queue.conn.execute(insert)
        prepared.queue.publish("other")

    prepared.queue.conn.execute(insert)


def test_two_publishers_to_the_same_full_topics_one_by_a_subscription_wait_without_a_deadlock(
    prepared: Prepared,
) -> None:
    """z is copied to a. One publishes to z, the other to both at once."""
    queue, other = prepared.queue, Queue(prepared.database.connect())
    for topic in ("a", "z"):
        queue.policy(topic, max_depth=10000, publish_rate=100000, burst=100000)
        queue.publish(topic)
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('z', 'a')")
    background = Background(prepared.database.connect())

    with queue.conn.transaction():
        queue.publish("a")
        published = background.start(other.publish, "z")
        while not background.is_blocked(other):
            assert not published.done()
        queue.publish("z")

    published.result(timeout=60)
    background.threads.shutdown(wait=True)


@pytest.mark.every_server
def test_an_outsider_with_the_process_number_of_an_ended_session_keeps_no_lease_alive(
    database: Database, db: psycopg.Connection[Any]
) -> None:
    queue = Queue(db)
    name = f"stranger_{queue.conn.info.backend_pid}"
    queue.conn.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'".encode())
    try:
        with database.connect(user=name, password=name) as outsider:
            with database.connect() as holder:
                assert holder.execute("SELECT messages.lock_export('e')").fetchone() == (True,)
                assert queue.value("SELECT messages.lock_export('e')") is False
            # Every role could see the key in pg_locks. And now the server has begun to count from the beginning.
            key = queue.value("UPDATE messages.lease SET pid = %s RETURNING lock_key", [outsider.info.backend_pid])
            outsider.execute("SELECT pg_advisory_lock(%s)", [key])

            assert queue.value("SELECT messages.lock_export('e')") is True
    finally:
        queue.conn.execute(f"DROP ROLE {name}".encode())


@pytest.mark.every_server
def test_a_user_who_may_take_leases_keeps_its_own(database: Database, db: psycopg.Connection[Any]) -> None:
    queue = Queue(db)
    name = f"loader_{queue.conn.info.backend_pid}"
    queue.conn.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}' IN ROLE messages_worker".encode())
    try:
        with database.connect(user=name, password=name) as loader:
            assert loader.execute("SELECT messages.lock_consumer('c')").fetchone() == (True,)

            assert queue.value("SELECT messages.lock_consumer('c')") is False
    finally:
        queue.conn.execute(f"DROP ROLE {name}".encode())
