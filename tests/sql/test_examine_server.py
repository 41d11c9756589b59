"""messages.examine_server: version, durability, autovacuum and transaction ids of the server."""

from __future__ import annotations

import pytest

from tests.sql.examined import examine, rolled_back
from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server

FAR_GONE = """
    UPDATE pg_database SET datfrozenxid = ((pg_current_xact_id()::text::bigint + 4294967296 - {age}) % 4294967296)::text::xid
    WHERE datname = current_database()
"""


def test_an_unsupported_version_is_reported(queue: Queue) -> None:
    assert examine(queue, "server").of("server_version").level == "ok"

    queue.stop_clock("2040-01-01 00:00+00")
    found = examine(queue, "server").of("server_version")

    assert found.level == "warn"
    assert "has had no fixes" in found.what
    assert "versioning" in found.fix


def test_settings_that_lose_messages_at_a_crash_are_reported(queue: Queue) -> None:
    # The servers of the tests never flush.
    found = examine(queue, "server")

    assert found.wrong["durability"] == "fail"
    assert "fsync is off" in found.text_of("durability")
    assert "ALTER SYSTEM SET full_page_writes = on" in found.text_of("durability")


def test_storage_that_protects_pages_itself_has_no_finding(queue: Queue) -> None:
    with rolled_back(queue, "SET LOCAL neon.timeline_id = 'x'"):
        assert examine(queue, "server").of("durability").level == "ok"


def test_asynchronous_commits_are_a_warning(queue: Queue) -> None:
    assert "synchronous_commit" not in examine(queue, "server").text_of("durability")

    with rolled_back(queue, "SET LOCAL synchronous_commit = off"):
        assert "synchronous_commit is off" in examine(queue, "server").text_of("durability")


def test_a_server_without_autovacuum_is_reported(queue: Queue) -> None:
    # The servers of the tests have none.
    found = examine(queue, "server")

    assert found.wrong["autovacuum"] == "fail"
    assert "ALTER SYSTEM SET autovacuum = on" in found.of("autovacuum").fix


def test_transaction_id_wraparound_is_reported_in_time(queue: Queue) -> None:
    assert examine(queue, "server").of("wraparound").level == "ok"

    with rolled_back(queue, FAR_GONE.format(age=1_200_000_000)):
        assert examine(queue, "server").of("wraparound").level == "warn"
    with rolled_back(queue, FAR_GONE.format(age=2_100_000_000)):
        found = examine(queue, "server").of("wraparound")

    assert found.level == "fail"
    assert "47 million transactions are left" in found.what
    assert "VACUUM (FREEZE)" in found.fix
