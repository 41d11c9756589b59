"""A publication of all tables, with a subscriber.

Nothing that the queue does is refused, and the subscriber has the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgrouse.database.install import schema
from tests.environments.life import ENDED, Life
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres
from tests.server.servers import Missing, Servers
from tests.sql.queue import Queue

COUNT = "SELECT count(*) FROM messages.message"
ROWS = "SELECT count(*), sum(id)::bigint, sum(attempts) FROM messages.message_archive"
# The rows that the subscription copies must not be there before.
EMPTY = """
    DO $$ BEGIN EXECUTE (
      SELECT 'TRUNCATE ' || string_agg(c.oid::regclass::text, ', ') FROM pg_class AS c
      WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    ); END $$
"""
BREAKER = {"failure_rate": 0.5, "min_attempts": 1, "window": "1m", "pause": "1s"}


@pytest.fixture
def logical(session_servers: Servers) -> Iterator[Postgres]:
    """A server that others can subscribe to."""
    try:
        with session_servers.private_server(wal_level="logical") as server:
            yield server
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.mark.every_server
def test_every_table_that_a_publication_may_name_has_a_key_or_a_replica_identity(queue: Queue) -> None:
    # A partition has its own; what is unlogged is in no publication.
    without = queue.rows(
        """
        SELECT c.oid::regclass::text AS name FROM pg_class AS c
        WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
          AND c.relreplident <> 'f'
          AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident))
        """
    )

    assert without == []


@pytest.mark.every_server
@pytest.mark.parametrize("publication", ["FOR ALL TABLES", "FOR TABLES IN SCHEMA messages"])
def test_topics_with_a_depth_or_a_breaker_work_in_a_publication(queue: Queue, publication: str) -> None:
    queue.conn.execute(f"SET client_min_messages = error; CREATE PUBLICATION everything {publication}".encode())
    queue.policy(max_depth=10, breaker=json.dumps(BREAKER), max_attempts=1)

    for end in ("complete", "fail"):
        queue.publish()
        assert queue.settle(end, queue.claim(), [None if end == "complete" else "no"]) == []

    assert queue.rows("SELECT t.task FROM messages.tick('daemon') AS t WHERE t.count < 0") == []
    assert queue.value("SELECT count(*) FROM messages.message_archive") == 2
    assert queue.depth() == 0
    assert queue.conn.execute("DELETE FROM messages.message_archive").rowcount == 2


def end_subscription(subscriber: psycopg.Connection[Any]) -> None:
    """Drop the subscription once its worker has ended: a DROP that meets a worker can wait for it without an end."""
    subscriber.execute("ALTER SUBSCRIPTION copy DISABLE")
    eventually(lambda: subscriber.execute("SELECT FROM pg_stat_subscription WHERE pid IS NOT NULL").rowcount == 0)
    subscriber.execute("ALTER SUBSCRIPTION copy SET (slot_name = NONE)")
    subscriber.execute("DROP SUBSCRIPTION copy")


@pytest.mark.slow
def test_messages_live_as_usual_while_another_database_subscribes_to_all_tables(
    logical: Postgres, life_in: Callable[[Database], Life]
) -> None:
    with logical.new_database() as database, logical.new_database() as copy:
        life = life_in(database)
        life.install()
        publisher, subscriber = database.connect(), copy.connect()
        schema.migrate(subscriber)
        publisher.execute("CREATE PUBLICATION everything FOR ALL TABLES")
        publisher.execute("SELECT pg_create_logical_replication_slot('copy', 'pgoutput')")
        subscriber.execute(EMPTY)
        subscriber.execute(
            f"CREATE SUBSCRIPTION copy CONNECTION '{database.dsn}' PUBLICATION everything WITH (create_slot = "
            "false, slot_name = 'copy')".encode()
        )
        try:
            daemon = life.run()
            life.publish()
            ended = life.finish(daemon)
            life.leave(daemon)
            for query in (ROWS, COUNT):
                eventually(
                    lambda query=query: subscriber.execute(query).fetchall() == publisher.execute(query).fetchall()
                )
        finally:
            end_subscription(subscriber)
            eventually(lambda: publisher.execute("SELECT FROM pg_replication_slots WHERE active").rowcount == 0)
            publisher.execute("SELECT pg_drop_replication_slot('copy')")

    assert ended == ENDED
