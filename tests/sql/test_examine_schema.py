"""messages.examine_schema: triggers, indexes and rights of the schema."""

from __future__ import annotations

import pytest

from tests.sql.examined import examine, rolled_back
from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server


def test_an_installed_schema_has_no_finding(queue: Queue) -> None:
    assert examine(queue, "schema").wrong == {}


@pytest.mark.parametrize(
    "change", ["DISABLE TRIGGER new_message", "ENABLE REPLICA TRIGGER new_message", "DISABLE TRIGGER ALL"]
)
def test_a_disabled_trigger_is_found_and_the_fix_enables_it(queue: Queue, change: str) -> None:
    with rolled_back(queue, f"ALTER TABLE messages.message {change}"):
        found = examine(queue, "schema")
        for row in found.rows:
            if row.code == "triggers":
                queue.conn.execute(row.fix.encode())
        fixed = examine(queue, "schema")

    assert found.wrong == {"triggers": "fail"}
    assert "the trigger new_message of messages.message" in found.text_of("triggers")
    assert fixed.wrong == {}


def test_an_invalid_index_is_found(queue: Queue) -> None:
    invalid = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'messages.{}'::regclass"
    with rolled_back(queue, invalid.format("message_ready"), invalid.format("message_key")):
        found = examine(queue, "schema")

    assert found.wrong == {"indexes": "fail"}
    assert "REINDEX INDEX CONCURRENTLY messages.message_ready;" in found.text_of("indexes")
    assert "REINDEX INDEX CONCURRENTLY messages.message_key;" in found.text_of("indexes")


def test_the_leftover_of_a_reindex_is_found_and_the_fix_drops_it(own_queue: Queue, other: Queue) -> None:
    own_queue.conn.execute("CREATE INDEX message_ready_ccnew ON messages.message (id)")
    own_queue.conn.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'messages.message_ready_ccnew'::regclass"
    )

    found = examine(own_queue, "schema")
    own_queue.conn.execute(found.of("indexes").fix.encode())

    assert found.wrong == {"indexes": "warn"}
    assert "left over" in found.of("indexes").what
    assert examine(own_queue, "schema").wrong == {}


@pytest.mark.parametrize(
    "grant",
    ["EXECUTE ON FUNCTION messages.tick", "SELECT ON messages.message_archive", "USAGE ON SCHEMA messages"],
)
def test_rights_of_public_are_found(queue: Queue, grant: str) -> None:
    with rolled_back(queue, f"GRANT {grant} TO PUBLIC"):
        found = examine(queue, "schema")

    assert found.wrong == {"public_rights": "fail"}
    assert grant.rsplit(maxsplit=1)[-1].removeprefix("FUNCTION ") in found.of("public_rights").what
