"""messages.examine_settings: harmful settings that sessions inherit."""

from __future__ import annotations

import pytest

from tests.sql.examined import examine, examine_and_fix, rolled_back
from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server


def test_the_default_settings_have_no_finding(queue: Queue) -> None:
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
def test_a_setting_of_the_database_is_found_and_the_fix_resets_it(
    queue: Queue, code: str, level: str, setting: str
) -> None:
    database = queue.conn.info.dbname
    with rolled_back(queue, f"ALTER DATABASE {database} SET {setting}"):
        found, fixed = examine_and_fix(queue, "settings", code)

    assert found.wrong == {code: level}
    assert f"for database {database}" in found.of(code).what
    assert fixed.wrong == {}


def test_a_setting_of_a_role_is_found_and_the_fix_resets_it(queue: Queue) -> None:
    with rolled_back(queue, "ALTER ROLE messages_worker SET session_replication_role = replica"):
        found, fixed = examine_and_fix(queue, "settings", "settings")

    assert "for role messages_worker" in found.of("settings").what
    assert fixed.wrong == {}


def test_a_setting_of_all_roles_is_found_and_the_fix_resets_it(queue: Queue) -> None:
    with rolled_back(queue, "ALTER ROLE ALL SET default_transaction_read_only = on"):
        found, fixed = examine_and_fix(queue, "settings", "settings")

    assert found.wrong == {"settings": "fail"}
    assert fixed.wrong == {}


def test_a_setting_of_the_server_is_found(queue: Queue) -> None:
    with rolled_back(queue, "SET LOCAL enable_indexscan = off"):
        found = examine(queue, "settings")

    assert found.wrong == {"planner": "warn"}
    assert "ALTER SYSTEM RESET enable_indexscan" in found.of("planner").fix
