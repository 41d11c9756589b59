"""What a task stages: every column unchanged, and each invalid row with its reason."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import chain

import psycopg
import pyarrow as pa
import pytest

from pgrouse.errors import ConfigError, DatabaseUnreachable, SchemaMismatch
from pyspark_pgrouse.errors import ServerFull
from pyspark_pgrouse.publish.job import publish, rejected_rows
from pyspark_pgrouse.publish.stage import Staged, check_usable, clear, stage
from tests.pipeline.publishing import batch, reasons, rows, then
from tests.server.postgres import Database
from tests.sql.queue import Queue

BAD = [f'{{"n": {n}}}' for n in range(40)]
BAD[3], BAD[17], BAD[18], BAD[39] = "nope", '"\\u0000"', '"\x00"', '{"a": "\\ud800"}'


def test_every_column_is_staged_unchanged(database: Database, queue: Queue) -> None:
    given = batch(
        topic=["a", "b"],
        payload=['{"n": 12345678901234567890.10, "ä": "\\"\\t\\\\"}', None],
        body=pa.array([None, b"\x00\xff\n\\."]),
        headers=pa.array([[("h", "v")], None], pa.map_(pa.string(), pa.string())),
        channel=["c, \"'\\", None],
        key=pa.array([None, 7]),
        priority=pa.array([None, 9], pa.int8()),
        delay=pa.array([timedelta(days=400, microseconds=1), None], pa.duration("us")),
        expires_at=pa.array([None, datetime(2100, 1, 1, 0, 0, 0, 1, tzinfo=UTC)], pa.timestamp("us", "Europe/Berlin")),
        max_attempts=pa.array([2**31 - 1, None]),
        timeout=pa.array([None, 1.5]),
        backoff=pa.array(["linear", None]),
        retention=pa.array([3600, None]),
    )

    staged = stage(database.dsn, "j", None, [given])

    found = queue.rows(
        """
        SELECT topic, payload::text, body, headers, channel, key, priority, delay, ttl, expires_at, max_attempts,
               timeout, backoff, retention
        FROM messages.publish_stage ORDER BY topic
        """
    )
    assert staged.rows == 2
    assert [tuple(row) for row in found] == [
        (
            *("a", '{"n": 12345678901234567890.10, "ä": "\\"\\t\\\\"}', None, {"h": "v"}, "c, \"'\\", None, 5),
            *(timedelta(days=400, microseconds=1), None, None, 2**31 - 1),
            *(None, {"kind": "linear"}, timedelta(hours=1)),
        ),
        (
            *("b", None, b"\x00\xff\n\\.", None, None, "7", 9),
            *(None, None, datetime(2100, 1, 1, 0, 0, 0, 1, tzinfo=UTC), None),
            *(timedelta(seconds=1.5), None, None),
        ),
    ]


def test_rows_that_only_the_server_can_refuse_are_found_among_the_others(database: Database, queue: Queue) -> None:
    staged = stage(database.dsn, "j", None, [rows(*BAD)])

    done = publish(database.dsn, "j", [staged])

    assert (staged.rows, done.published, done.rejected) == (40, 36, 4)
    found = reasons(database, "j")
    assert sum(reason.startswith("payload is not JSON: ") for reason in found) == 2
    assert sum("Unicode" in reason for reason in found) == 2
    assert len(queue.ids()) == 36


@pytest.mark.parametrize("payload", ["nope", '"\\u0000"'])
def test_a_file_of_only_invalid_rows_is_rejected_row_by_row(database: Database, payload: str) -> None:
    done = publish(database.dsn, "j", [stage(database.dsn, "j", None, [rows(*[payload] * 9)])])

    assert (done.published, done.rejected) == (0, 9)


def test_headers_that_are_not_an_object_are_rejected(database: Database) -> None:
    given = batch(topic=["t"] * 4, payload=["1"] * 4, headers=["[]", '{"a": 1}', "{", "{}"])

    # The rows outside of a slice are not staged.
    done = publish(database.dsn, "j", [stage(database.dsn, "j", None, [given.slice(0, 3)])])

    assert (done.published, done.rejected) == (1, 2)


def test_a_rejected_row_is_stored_unchanged(database: Database) -> None:
    given = batch(
        topic=["no topic"],
        payload=["1\x00"],
        priority=pa.array([3]),
        delay=pa.array([1.5]),
        expires_at=pa.array([datetime(2100, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
    )

    publish(database.dsn, "j", [stage(database.dsn, "j", None, [given])])

    ((nth, reason, text),) = rejected_rows(database.dsn, "j")
    assert (nth, reason[:11]) == (1, "topic is no")
    assert json.loads(text) == {
        "topic": "no topic",
        "payload": "1\ufffd",
        "priority": 3,
        "delay": 1.5,
        "expires_at": "2100-01-01T00:00:00+00:00",
    }


def test_payloads_that_do_not_match_the_schema_of_their_topic_are_rejected(database: Database, queue: Queue) -> None:
    queue.policy(payload_schema={"type": "object"})

    done = publish(database.dsn, "j", [stage(database.dsn, "j", None, [rows("1", "{}", "nope")])])

    assert (done.published, done.rejected) == (1, 2)
    assert any("payload_schema of topic t" in reason for reason in reasons(database, "j"))


def test_rows_that_will_not_be_published_are_cleared(database: Database, queue: Queue) -> None:
    clear(database.dsn, [stage(database.dsn, "j", None, [rows("1")]), Staged("j")])

    assert queue.rows("SELECT FROM messages.publish_stage") == []


def test_a_connection_lost_during_staging_is_reported_and_the_task_can_be_repeated(
    database: Database, queue: Queue
) -> None:
    def cut() -> None:
        queue.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgrouse-spark'")

    with pytest.raises(DatabaseUnreachable, match=r"connection was lost .* run the job again"):
        stage(database.dsn, "j", None, chain(then([rows("1")], cut), [rows("2")]))

    again = stage(database.dsn, "j", None, [rows("1"), rows("2")])
    assert publish(database.dsn, "j", [again]).published == 2
    assert len(queue.ids()) == 2


def test_a_full_disk_is_reported(own_database: Database) -> None:
    own_database.connect().execute(
        """
        CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$;
        CREATE TRIGGER full_disk BEFORE INSERT ON messages.publish_stage FOR EACH ROW EXECUTE FUNCTION full_disk();
        """
    )

    with pytest.raises(ServerFull, match=r"disk is full .*: make room; nothing was published"):
        stage(own_database.dsn, "j", None, [rows("1")])


def test_a_database_without_the_schema_is_reported_at_once(empty_database: Database) -> None:
    with pytest.raises(SchemaMismatch, match="run `pgrouse migrate`"):
        check_usable(empty_database.connect())


def test_a_role_that_may_not_publish_gets_the_missing_right(database: Database) -> None:
    conn = database.connect()
    conn.execute("SET ROLE messages_analyst")

    with pytest.raises(ConfigError, match="GRANT messages_publisher TO"):
        check_usable(conn)


def test_an_error_of_the_server_names_no_payload(database: Database, queue: Queue) -> None:
    queue.policy(max_depth=1)
    staged = stage(database.dsn, "j", None, [rows('"s3cret"', "2")])

    with pytest.raises(Exception, match="topic t is full") as caught:
        publish(database.dsn, "j", [staged])

    assert "s3cret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, psycopg.Error)
