"""messages.examine_settings: what sessions get without a word."""

from __future__ import annotations

import pytest

from tests.sql.examined import examine, undone
from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server


def test_a_plain_server_harms_nothing(queue: Queue) -> None:
    assert examine(queue, "settings").wrong == {}


@pytest.mark.parametrize(
    ("code", "level", "setting"),
    [
        ("settings", "fail", "session_replication_role = replica"),
        ("settings", "fail", "default_transaction_read_only = on"),
        ("settings", "warn", "default_transaction_isolation = 'repeatable read'"),
        ("planner", "warn", "enable_indexscan = off"),
        ("planner", "warn", "plan_cache_mode = force_custom_plan"),
        ("planner", "warn", "jit_above_cost = 10"),
    ],
)
def test_what_a_database_gives_to_its_sessions_is_found_and_fixed(
    queue: Queue, code: str, level: str, setting: str
) -> None:
    database = queue.conn.info.dbname
    with undone(queue, f"ALTER DATABASE {database} SET {setting}"):
        found = examine(queue, "settings")
        queue.conn.execute(found.of(code).fix.encode())
        fixed = examine(queue, "settings")

    assert found.wrong == {code: level}
    assert f"for database {database}" in found.of(code).what
    assert fixed.wrong == {}


def test_what_a_role_brings_along_is_found_and_fixed(queue: Queue) -> None:
    with undone(queue, "ALTER ROLE messages_worker SET session_replication_role = replica"):
        found = examine(queue, "settings")
        queue.conn.execute(found.of("settings").fix.encode())
        fixed = examine(queue, "settings")

    assert "for role messages_worker" in found.of("settings").what
    assert fixed.wrong == {}


def test_what_every_role_brings_along_is_found_and_fixed(queue: Queue) -> None:
    with undone(queue, "ALTER ROLE ALL SET default_transaction_read_only = on"):
        found = examine(queue, "settings")
        queue.conn.execute(found.of("settings").fix.encode())
        fixed = examine(queue, "settings")

    assert found.wrong == {"settings": "fail"}
    assert fixed.wrong == {}


def test_what_the_server_gives_to_all_is_found(queue: Queue) -> None:
    with undone(queue, "SET LOCAL enable_indexscan = off"):
        found = examine(queue, "settings")

    assert found.wrong == {"planner": "warn"}
    assert "ALTER SYSTEM RESET enable_indexscan" in found.of("planner").fix
