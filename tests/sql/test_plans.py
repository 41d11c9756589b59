"""The generic plans of the statements inside the functions: no scan of a whole table, no join that reads a whole table.

A plan is made once per session and kept. A plan that was made while the table was empty, or before it was ever
analyzed, must be good for 10 million rows: so it must not depend on statistics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

pytestmark = pytest.mark.newest

# In hundreds of pages, a plan that reads all of them is as far from the right one as in thousands.
ROWS = 40_000
FILL = """
    INSERT INTO messages.message (topic, channel, key, priority, payload, available_at)
    SELECT
      't' || n % 3, CASE WHEN n % 5 = 0 THEN 'c' || n % 100 END, CASE WHEN n % 7 = 0 THEN 'k' || n END, n % 4, '{}',
      now() + (n % 1000 - 900) * interval '1 s'
    FROM generate_series(1, %(rows)s) AS n;
    INSERT INTO messages.message_archive (
      id, topic, priority, payload, created_at, available_at, attempts, claim_id, result)
    SELECT 1000000 + n, 't0', 5, '{}', now(), now(), 1, n, CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'success' END
    FROM generate_series(1, %(rows)s / 2) AS n;
    INSERT INTO messages.message (topic, channel, payload)
    SELECT CASE WHEN n % 2 = 0 THEN 'limited' ELSE 'ordered' END, 'c' || n % 2000, '{}'
    FROM generate_series(1, %(rows)s / 4) AS n;
    INSERT INTO messages.topic (
      topic, max_concurrency, dequeue_rate, channel_concurrency, channel_min_interval, ordered
    ) VALUES
      ('limited', 100000, 100000, 5, '1 s', false), ('ordered', NULL, NULL, NULL, NULL, true)
    ON CONFLICT DO NOTHING;
    INSERT INTO messages.channel (topic, channel, concurrency, min_interval)
    SELECT 'limited', 'c' || n, 3, '1 ms' FROM generate_series(1, %(rows)s / 40) AS n
    ON CONFLICT DO NOTHING;
    INSERT INTO messages.low_water (topic, priority, at) VALUES ('t0', 1, now() - interval '1 hour');
    INSERT INTO messages.message (topic, payload, available_at) SELECT 'blocked', '{}', '9000-01-01 00:00+00'
    FROM generate_series(1, %(rows)s / 10);
    INSERT INTO messages.blocked_message (id, after_failed, width, check_at)
    SELECT m.id, 'cancel', 1, now() + interval '1 hour' FROM messages.message AS m WHERE m.topic = 'blocked';
    INSERT INTO messages.dependency (successor_id, predecessor_id) SELECT k.id, 2000000000 + k.id
    FROM messages.blocked_message AS k;
    INSERT INTO messages.redrive_log (archived_id, message_id) SELECT 3000000000 + n, 4000000000 + n
    FROM generate_series(1, %(rows)s / 10) AS n;
    SELECT messages.raise_awaited_flag()
"""
EXPLAIN = """
    LOAD 'auto_explain';
    SET auto_explain.log_min_duration = 0;
    SET auto_explain.log_nested_statements = on;
    SET auto_explain.log_level = notice;
    SET client_min_messages = notice;
    SET plan_cache_mode = force_generic_plan;
    -- As low as the rows here are few.
    SET jit_above_cost = 40000
"""

HOLD = """
    INSERT INTO held SELECT id, claim_id FROM messages.claim('w', ARRAY['t0', 't1', 't2'], 300);
    UPDATE messages.message SET max_attempts = 1 + id % 3 WHERE claim_id IS NOT NULL;
    UPDATE messages.message SET lock_expires_at = now() - interval '1 s' WHERE claim_id IS NOT NULL AND id % 2 = 0;
    UPDATE messages.dependency SET predecessor_id = (SELECT min(id) FROM held)
    WHERE successor_id = (SELECT min(id) FROM messages.blocked_message);
    INSERT INTO messages.end_event (id, result) SELECT min(id), 'success' FROM held;
    INSERT INTO messages.throttled_key (topic, key, message_id, published_at, throttle, check_at)
    SELECT 't0', 'lives', min(id), now(), interval '1 s', now() FROM held
    UNION ALL SELECT 't0', 'ended', 1000010, now() - interval '1 day', '1 s', now()
"""
HELD = "ARRAY(SELECT id FROM held), ARRAY(SELECT claim_id FROM held)"
WHY = "ARRAY(SELECT 'why' FROM held)"
# Statements that a worker runs for every batch.
HOT = {
    "claim": "SELECT * FROM messages.claim('w', ARRAY['t0', 't1', 't2'], 100)",
    "claim in pieces": "SELECT * FROM messages.claim('w', ARRAY['t0', 't1'], 7, "
    "ARRAY[3, 4], 1000, '1 s', 't1', '{\"t0\": \"c5\"}')",
    "claim in limited channels": "SELECT * FROM messages.claim('w', ARRAY['limited'], 100)",
    "claim in ordered channels": "SELECT * FROM messages.claim('w', ARRAY['ordered'], 100, "
    'p_after_channels => \'{"ordered": "c5"}\')',
    "next_due": "SELECT messages.next_due(ARRAY['t0', 't1', 't2'])",
    "complete": f"SELECT messages.complete({HELD})",
    "complete what was lost": "SELECT messages.complete(ARRAY[1000005, 3], ARRAY[5, 77])",
    "reject": f"SELECT messages.reject({HELD}, {WHY})",
    "fail": f"SELECT messages.fail({HELD}, {WHY})",
    "retry": f"SELECT messages.retry({HELD}, {WHY})",
    "defer": f"SELECT messages.defer({HELD})",
    "release": f"SELECT messages.release({HELD})",
    "release_orphaned": "SELECT messages.release_orphaned('w', ARRAY[1])",
    "publish with debounce": "SELECT count(*) FROM generate_series(1, 2), "
    "LATERAL messages.publish('t0', '1', 'debounced', p_debounce => '1 s')",
    "publish with throttle": "SELECT count(*) FROM unnest(ARRAY['lives', 'ended', 'new']) AS k (key), "
    "LATERAL messages.publish('t0', '1', k.key, p_throttle => '1 s')",
    "heartbeat": f"SELECT messages.heartbeat({HELD})",
    "read_claimed": f"SELECT * FROM messages.read_claimed({HELD})",
    "claimed_ids": "SELECT * FROM messages.claimed_ids(ARRAY[1, 2])",
}
# Statements that run occasionally.
COLD = {
    "expire_locks": "SELECT messages.expire_locks()",
    "expire_messages": "SELECT messages.expire_messages()",
    "renotify_stale": "SELECT messages.renotify_stale()",
    "raise_low_water": "SELECT messages.raise_low_water('0 s')",
    "prune": "SELECT messages.prune()",
    "cancel": "SELECT messages.cancel(ARRAY[1, 2, 3])",
    "redrive": "SELECT * FROM messages.redrive(ARRAY[1000010, 1000020])",
    "unhandled_topics": "SELECT * FROM messages.unhandled_topics()",
    "conditions": "SELECT * FROM messages.conditions()",
    "incidents": "SELECT * FROM messages.incidents(p_over => true)",
    "update_conditions": "SELECT messages.update_conditions()",
    "stats": "SELECT * FROM messages.stats(100)",
    "propagate_ends": "SELECT messages.propagate_ends(ARRAY(SELECT min(id) FROM held), true, 100)",
    "unblock": "SELECT messages.unblock(ARRAY(SELECT max(id) FROM messages.blocked_message))",
    "find_dead": "SELECT * FROM messages.find_dead(p_limit => 10)",
    "subscribe": "INSERT INTO messages.subscription (topic, subscriber) VALUES ('t0', 's') RETURNING topic",
}


class Planned(Queue):
    """A queue with generic plans, which returns the plans of every statement that it runs, nested ones included."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        super().__init__(conn)
        conn.execute(EXPLAIN)
        # This is not done when the table is filled: creating the schema of temporary tables makes all plans invalid.
        conn.execute("CREATE TEMP TABLE held (id bigint, claim_id bigint)")

    def plans(self, statement: str) -> list[str]:
        plans: list[str] = []

        def keep(notice: psycopg.errors.Diagnostic) -> None:
            plans.append(notice.message_primary or "")

        self.conn.add_notice_handler(keep)
        self.rows(statement)
        self.conn.remove_notice_handler(keep)
        return [plan for plan in plans if "messages." in plan]

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold some messages, some with their last attempt and some with an expired lock.

        Everything is rolled back at the end.
        """
        with self.undone():
            self.conn.execute(HOLD)
            yield

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Undo at the end what the block changes."""
        with self.conn.transaction(force_rollback=True):
            yield


@pytest.fixture(scope="module")
def filled(server: Postgres) -> Iterator[tuple[Database, Planned]]:
    """A full table that was never analyzed since it had ten rows.

    The connection planned everything at that time.
    """
    with server.new_database(template=server.migrated) as database, server.admin(database.name) as admin:
        admin.execute("ALTER TABLE messages.message SET (autovacuum_enabled = false)")
        admin.execute(FILL.replace("%(rows)s", "10"))
        admin.execute("ANALYZE messages.message, messages.message_archive")
        early = Planned(database.connect())
        with early.holding():
            for statement in (*HOT.values(), *COLD.values()):
                with early.undone():
                    early.rows(statement)
        admin.execute(
            "DELETE FROM messages.message; DELETE FROM messages.low_water; DELETE "
            "FROM messages.blocked_message; DELETE FROM messages.dependency; "
            "DELETE FROM messages.redrive_log"
        )
        admin.execute(FILL.replace("%(rows)s", str(ROWS)))
        yield database, early


# In this order: the last changes the database for those before it.
@pytest.fixture(scope="module", params=["planned when it had ten rows", "not analyzed since", "analyzed"])
def holding(request: pytest.FixtureRequest, filled: tuple[Database, Planned]) -> Iterator[Planned]:
    """A connection to a full table that holds some messages."""
    database, early = filled
    if request.param == "analyzed":
        with database.server.admin(database.name) as admin:
            admin.execute("ANALYZE")
    queue = early if request.param == "planned when it had ten rows" else Planned(database.connect())
    with queue.holding():
        yield queue


@pytest.fixture
def full(holding: Planned) -> Iterator[Planned]:
    """The same connection, for one test: what it changes is undone."""
    with holding.undone():
        yield holding


# These join what they have counted already: one row per topic, or one per condition. Or they join subscriptions.
JOINS_FEW = ("stats", "update_conditions", "subscribe")
FOLLOWS_ENDS = ("complete", "reject", "fail", "cancel", "redrive", "propagate_ends", "unblock")
BY_ID = ("complete", "reject", "fail", "read_claimed")
CLAIMS = tuple(name for name in HOT if name.split()[0] == "claim")


@pytest.mark.parametrize("name", [*HOT, *COLD])
@pytest.mark.slow
def test_no_statement_reads_the_whole_table_or_archive(full: Planned, name: str) -> None:
    """All rules for plans. One case, since they are the plans of one run."""
    plans = full.plans((HOT | COLD)[name])

    assert len(plans) > 1
    assert {rule: found for rule, found in broken_rules(name, plans) if found} == {}


# Two arrays that are read together have the name of both, e.
ARRAY = re.compile(r"SubPlan (\d+)\n +->  Function Scan on (?:unnest|e )")


def broken_rules(name: str, plans: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each rule for the plans of this statement, and the plans that break it."""

    def having(pattern: str) -> list[str]:
        return [plan for plan in plans if re.search(pattern, plan)]

    yield "reads no whole table or archive", having(r"Seq Scan on (message|message_archive\w*) ")
    # The plan of EXISTS under an OR in PostgreSQL 18 without statistics. A node that reads an array is right: the array
    # is there as a whole.
    yield (
        "does not ask whether something exists by reading all there is",
        [plan for plan in plans if set(re.findall(r"hashed SubPlan (\d+)", plan)) - set(ARRAY.findall(plan))],
    )
    yield "is not compiled, which would take longer than to run it", having("JIT:")
    if name not in JOINS_FEW:
        yield "joins neither by hash nor by merge, which read one side whole", having(r"(Hash|Merge) (\w+ )?Join")
    if name in FOLLOWS_ENDS:
        yield (
            "does not read all that wait for others",
            having(r"Seq Scan on (dependency|blocked_message|redrive_log|end_event) "),
        )
    if name in BY_ID:
        yield "looks for a locked message by its id", having(r"using message_locked on message m.*\n(?! *Index Cond)")
    if name in CLAIMS:
        yield "does not read all that limits remember", having(r"Seq Scan on (rate|channel|topic|breaker) ")


READS_IN_ORDER = (
    r"->  Limit .*\n(?: +InitPlan [\s\S]*?)? *->  LockRows .*\n *->  Index Scan using message_ready(_channel)? "
    r"on message [am] "
)


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_reads_its_indexes_in_order_and_no_further_than_its_limit(full: Planned, claim: str) -> None:
    locking = [plan for plan in full.plans(HOT[claim]) if "FOR NO KEY UPDATE SKIP LOCKED" in plan]
    # The others lock the row of a rate, by its key.
    reading = [plan for plan in locking if "message AS" in plan or " on message " in plan]

    assert reading
    assert [plan for plan in reading if not re.search(READS_IN_ORDER, plan)] == []


def test_a_claim_updates_by_address(full: Planned) -> None:
    updating = [plan for plan in full.plans(HOT["claim"]) if re.search(r"Update on message", plan)]

    assert updating
    assert all("Tid Scan on message m" in plan for plan in updating)


def test_a_claim_reads_a_few_pages_for_each_message_it_returns(full: Planned) -> None:
    assert full.buffers("SELECT * FROM messages.claim('w', ARRAY['t0', 't1', 't2'], 100)") < 100 * 60


@pytest.mark.parametrize("topic", ["limited", "ordered"])
def test_a_claim_reads_a_few_pages_for_each_channel_that_it_skips(full: Planned, topic: str) -> None:
    """The second of two claims skips the hundred channels of the first, and then reads up to 1400 at once.

    Before that it reads what has been due longest: up to a thousand rows, an entry and a page each.
    """
    assert full.buffers(f"SELECT * FROM messages.claim('w', ARRAY['{topic}'], 100)") < 1500 * 15 + 1000 * 2


def test_a_claim_that_finds_nothing_reads_a_few_pages(full: Planned) -> None:
    assert full.buffers("SELECT * FROM messages.claim('w', ARRAY['unknown', 'at.all'], 100)") < 60


# The clock is VOLATILE: compared with a column directly, it would be read for each row, and no index could be used.
DUE = {
    "propagate_missed_ends": "SELECT messages.propagate_missed_ends()",
    "prune_keys": "SELECT messages.prune_keys(0)",
    "prune_throttles": "SELECT messages.prune_throttles()",
    "prune_web": "SELECT messages.prune_web()",
    "prune_waiters": "SELECT messages.prune_waiters()",
    "fire_schedules": "SELECT messages.fire_schedules()",
    "silence_of": "SELECT messages.silence_of('dead_message', 't', 'f')",
}
NOT_DUE = """
    INSERT INTO messages.blocked_message (id, after_failed, width, check_at, checked_below)
    SELECT n, 'hold', 1, now() + interval '1 day', '3' FROM generate_series(1, 20000) AS n;
    INSERT INTO messages.held_key (topic, key, message_id, free_at)
    SELECT 't', 'k' || n, n, now() + interval '1 day' FROM generate_series(1, 20000) AS n;
    INSERT INTO messages.throttled_key (topic, key, message_id, published_at, throttle, check_at)
    SELECT 't', 'k' || n, n, now(), '1 day', now() + interval '1 day' FROM generate_series(1, 20000) AS n;
    INSERT INTO messages.web_request (caller, key, digest) SELECT 'c', 'k' || n, 'x'
    FROM generate_series(1, 20000) AS n;
    INSERT INTO messages.waiter (message_id, until) SELECT n, now() + interval '1 day'
    FROM generate_series(1, 20000) AS n;
    SET session_replication_role = replica;
    INSERT INTO messages.schedule (name, cron, topic, next_tick)
    SELECT 's' || n, '0 0 1 1 *', 't', now() + interval '1 day' FROM generate_series(1, 20000) AS n;
    RESET session_replication_role;
    INSERT INTO messages.silence (topic, until, ended_at) SELECT 't', now() - interval '1 day', NULL
    FROM generate_series(1, 20000) AS n;
    SELECT setval('messages.awaited_flag', 2);
    ANALYZE messages.blocked_message, messages.silence, messages.held_key, messages.throttled_key, messages.web_request,
      messages.waiter, messages.schedule
"""


@pytest.fixture(scope="module")
def nothing_due(server: Postgres) -> Iterator[Queue]:
    """A database in which many rows wait for a future time, and none for one that has passed."""
    with server.new_database(template=server.migrated) as database:
        queue = Queue(database.connect())
        queue.conn.execute(NOT_DUE)
        yield queue


@pytest.mark.parametrize("name", DUE)
def test_rows_that_are_not_due_are_not_read(nothing_due: Queue, name: str) -> None:
    """Twenty thousand of each fill a hundred pages and more."""
    assert nothing_due.buffers(DUE[name]) < 100


DEAD, EACH = 9_000, 12
DIED = """
    INSERT INTO messages.message_archive (
      id, topic, priority, payload, created_at, available_at, attempts, claim_id, result, archived_at)
    SELECT n, 'p' || n / %(each)s % 2, 5, '{}', now(), now(), 1, n,
           CASE WHEN n % %(each)s = 0 THEN 'failed' ELSE 'success' END,
           date_trunc('day', now()) + n / (4 * %(each)s) % 4 * interval '1 day'
           + interval '12 hours' + n * interval '1 ms'
    FROM generate_series(1, %(each)s * %(dead)s) AS n;
    ANALYZE
"""
PAGE = 100
DEAD_PAGES = {
    "all": "SELECT * FROM messages.find_dead(p_limit => {limit}, p_after => {after})",
    "of a topic": "SELECT * FROM messages.find_dead('p0', p_limit => {limit}, p_after => {after})",
    "of a kind": "SELECT * FROM messages.find_dead(p_result => 'failed', p_limit => {limit}, p_after => {after})",
    "redriven too": "SELECT * FROM messages.find_dead(p_limit => {limit}, p_after => {after}, p_redriven => true)",
}


@pytest.fixture(scope="module")
def many_dead(server: Postgres) -> Iterator[Queue]:
    """A database with many dead messages, of two topics and on several days, each between many successes."""
    with server.new_database(template=server.migrated) as database:
        queue = Queue(database.connect())
        queue.conn.execute(DIED.replace("%(dead)s", str(DEAD)).replace("%(each)s", str(EACH)))
        yield queue


@pytest.mark.parametrize("name", DEAD_PAGES)
@pytest.mark.parametrize("limit", [PAGE, 10 * PAGE])
def test_a_page_of_dead_messages_costs_the_same_wherever_it_begins(many_dead: Queue, name: str, limit: int) -> None:
    middle = many_dead.value(
        "SELECT id FROM messages.message_archive WHERE result = 'failed' AND topic = 'p0' "
        "ORDER BY archived_at OFFSET %s LIMIT 1",
        [DEAD // 4],
    )

    pages = [many_dead.buffers(DEAD_PAGES[name].format(limit=limit, after=after)) for after in ("NULL", middle)]

    # A row, its index entry and the check for a redrive, of each of two topics; and the edges of a few days.
    assert max(pages) < 2 * limit * 6 + 300


def test_each_page_of_a_redrive_costs_the_same(many_dead: Queue) -> None:
    pages, after = [], "NULL"
    with many_dead.conn.transaction(force_rollback=True):
        for _ in range(5):
            # It runs twice: the second time it redrives the next page. All of them died on one day.
            page = f"SELECT max(archived_id) FROM messages.redrive_where('p0', p_limit => {PAGE}, p_after => {after})"
            pages.append(many_dead.buffers(page))
            after = many_dead.value("SELECT max(archived_id) FROM messages.redrive_log")

    assert pages[-1] < 1.3 * pages[1], pages
