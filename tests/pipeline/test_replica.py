"""Rows that are read from a standby, while the primary plans the read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
from adbc_driver_postgresql import dbapi

from pgrouse import devdb
from pgrouse.errors import ConfigError, DatabaseUnreachable
from pyspark_pgrouse.connection import replica
from pyspark_pgrouse.options import Operation, Options
from pyspark_pgrouse.read.archive_batch import ArchiveBatch
from pyspark_pgrouse.read.archive_stream import ArchiveStream
from tests.pipeline.reading import archive, ids, settled, spark_schema
from tests.pipeline.standby import standby_of
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres


@dataclass(frozen=True)
class Pair:
    """A primary and its standby."""

    primary: Database
    standby: devdb.PrivateServer

    @property
    def standby_dsn(self) -> str:
        """A connection string of the same database on the standby."""
        return self.standby.dsn(self.primary.name)

    def replay(self, *, paused: bool) -> None:
        """Let the standby replay, or not."""
        with psycopg.connect(self.standby_dsn, autocommit=True) as conn:
            conn.execute("SELECT pg_wal_replay_pause()" if paused else "SELECT pg_wal_replay_resume()")
            state = "SELECT pg_get_wal_replay_pause_state()"
            eventually(lambda: conn.execute(state).fetchone() == ("paused" if paused else "not paused",))

    def options(self, operation: Operation = Operation.BATCH, **given: str) -> Options:
        """Return the options of a read of both."""
        return Options.parse({"dsn": self.primary.dsn, "replicaDsn": self.standby_dsn, **given}, operation)


@pytest.fixture(scope="module")
def pair(session_servers: Any) -> Iterator[Pair]:
    """A primary with the schema, and its standby."""
    with (
        session_servers.private_server() as server,
        server.new_database(server.migrated) as database,
        standby_of(server) as standby,
    ):
        yield Pair(database, standby)


@pytest.fixture(autouse=True)
def empty_archive(pair: Pair) -> Iterator[None]:
    """Begin each test with an empty archive and a standby that replays."""
    pair.primary.connect().execute("TRUNCATE messages.message_archive")
    yield
    pair.replay(paused=False)


def batch(options: Options) -> ArchiveBatch:
    return ArchiveBatch(options, spark_schema(options, "id"))


def test_rows_come_from_the_standby_and_the_plan_from_the_primary(pair: Pair) -> None:
    conn = pair.primary.connect()
    archive(conn, range(100))
    reader = batch(pair.options())

    parts = reader.partitions()
    found = ids(reader, parts)

    # The rows come from the standby: the primary is not asked for them.
    assert sorted(found) == list(range(100))
    assert reader._rows._dsn == pair.standby_dsn
    # The primary itself may stand in for a missing standby.
    alone = batch(Options.parse({"dsn": pair.primary.dsn, "replicaDsn": pair.primary.dsn}))
    assert len(ids(alone, alone.partitions())) == 100


def test_a_task_waits_until_the_standby_has_what_the_plan_saw(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.replay(paused=True)
    archive(pair.primary.connect(), range(100))
    reader = batch(pair.options())
    parts = reader.partitions()
    waited: list[float] = []
    # The standby goes on when a task waits for it.
    monkeypatch.setattr(replica.time, "sleep", lambda s: (waited.append(s), pair.replay(paused=False)))

    found = ids(reader, parts)

    assert sorted(found) == list(range(100))
    assert waited


def test_a_standby_that_does_not_catch_up_is_reported(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.replay(paused=True)
    archive(pair.primary.connect(), range(100))
    reader = batch(pair.options())
    parts = reader.partitions()
    monkeypatch.setattr(replica, "POLL_S", 0.0)
    target = parts[0].target  # type: ignore[attr-defined]

    with (
        closing(dbapi.connect(pair.standby_dsn, autocommit=True)) as conn,
        closing(conn.cursor()) as cursor,
        pytest.raises(
            DatabaseUnreachable, match=r"option replicaDsn lags behind: the read needs .* leave replicaDsn out"
        ),
    ):
        replica.wait_for_replay(cursor, target, timeout_s=0.1)


def test_another_cluster_is_no_standby(pair: Pair) -> None:
    """Servers of tests are copies of one cluster, so the plan is that of another."""
    archive(pair.primary.connect(), [1])
    target = batch(pair.options()).partitions()[0].target  # type: ignore[attr-defined]

    with (
        closing(dbapi.connect(pair.standby_dsn, autocommit=True)) as conn,
        closing(conn.cursor()) as cursor,
        pytest.raises(ConfigError, match="name a standby of the same cluster"),
    ):
        replica.wait_for_replay(cursor, replace(target, system="7000000000000000000"))


def test_a_stream_reads_its_rows_from_the_standby_and_its_position_from_the_primary(pair: Pair) -> None:
    conn = pair.primary.connect()
    archive(conn, range(50))
    settled(conn)
    options = pair.options(Operation.STREAM)
    stream = ArchiveStream(options, spark_schema(options, "id"))
    start = stream.initialOffset()

    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    found = ids(stream, stream.partitions(start, end))

    assert sorted(found) == list(range(50))


@pytest.mark.long
def test_a_promoted_standby_is_refused_since_it_may_lack_rows(private_server: Postgres) -> None:
    with private_server.new_database(private_server.migrated) as primary, standby_of(private_server) as standby:
        archive(primary.connect(), [1])
        pair = Pair(primary, standby)
        with psycopg.connect(pair.standby_dsn, autocommit=True) as conn:
            conn.execute("SELECT pg_promote(true, 60)")
        reader = batch(pair.options())

        with pytest.raises(ConfigError, match="was it promoted"):
            ids(reader, reader.partitions())
