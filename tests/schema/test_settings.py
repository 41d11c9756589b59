"""Each function has exactly the settings of sql/settings.sql, also after it was replaced or altered by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgrouse.database.install import schema
from tests.schema.second_version import file

SETTINGS = (
    "SELECT p.proname::text, s FROM pg_proc AS p, unnest(p.proconfig) AS s "
    "WHERE p.pronamespace = 'messages'::regnamespace"
)
SAFE_PATH = "search_path=pg_catalog, pg_temp"
# A SELECT that is inlined into the calling statement. With settings, or with the rights of its owner, it would be a
# call.
INLINED = {"has_policies", "has_strict_lock", "is_in_ordered_channel", "is_paused", "key_holder", "live_state", "now"}


def settings(conn: psycopg.Connection[Any]) -> set[tuple[str, str]]:
    return {(name, setting) for name, setting in conn.execute(SETTINGS)}


def files() -> dict[str, str]:
    """The texts of all files with functions."""
    return {each.name: each.text.decode() for each in schema.scripts() if b"CREATE OR REPLACE FUNCTION" in each.text}


def rule() -> set[tuple[str, str]]:
    """The settings that settings.sql has for the functions that it names."""
    groups = re.findall(r"\(ARRAY\[([^]]+)\], '([^']+)'\)", schema.script("settings.sql").decode())
    return {
        (name, setting)
        for given, names in groups
        for setting in re.findall(r"'([^']+)'", given)
        for name in names.split()
    }


def set_in_files() -> set[tuple[str, str]]:
    """The settings that a function has in its own file."""
    found = (
        (name, re.findall(r"^SET (\w+) = '?([^'\n]+)'?$", text.partition("AS $$")[0], re.MULTILINE))
        for name, text in files().items()
    )
    return {(name, f"{setting}={value}") for name, pairs in found for setting, value in pairs}


@pytest.mark.every_server
def test_each_function_has_the_settings_of_the_rule_and_no_others(db: psycopg.Connection[Any]) -> None:
    definers = db.execute(
        "SELECT p.proname::text FROM pg_proc AS p WHERE p.pronamespace = 'messages'::regnamespace AND p.prosecdef"
    )

    assert settings(db) == rule() | {(name, SAFE_PATH) for (name,) in definers} | set_in_files()


def test_the_file_of_a_function_sets_only_a_timeout() -> None:
    assert {setting.partition("=")[0] for _, setting in set_in_files()} == {"lock_timeout"}


def test_an_inlined_function_has_no_settings(db: psycopg.Connection[Any]) -> None:
    inlined = db.execute(
        """
        SELECT p.proname::text FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang
        WHERE p.pronamespace = 'messages'::regnamespace AND l.lanname = 'sql' AND NOT p.prosecdef
          AND p.proconfig IS NULL
        """
    )

    assert {name for (name,) in inlined} >= INLINED


def test_a_replaced_function_gets_its_settings_again(installed: psycopg.Connection[Any], sql_copy: Path) -> None:
    before = settings(installed)
    names = ["claim", "new_blocked", "tick"]
    for name in names:
        changed = file(sql_copy, name)
        changed.write_text("-- Changed.\n" + changed.read_text())

    assert sorted(schema.migrate(installed)) == names

    assert settings(installed) == before


@pytest.mark.every_server
def test_settings_that_were_altered_by_hand_are_restored_by_the_next_migrate(
    installed: psycopg.Connection[Any],
) -> None:
    before = settings(installed)
    installed.execute("ALTER FUNCTION messages.claim RESET ALL")
    installed.execute("ALTER FUNCTION messages.cancel SET enable_seqscan = on SET work_mem = '1MB'")
    installed.execute("ALTER FUNCTION messages.archive SET search_path = public")

    schema.migrate(installed)

    assert settings(installed) == before


def test_a_function_that_another_role_added_to_the_schema_is_left_alone(installed: psycopg.Connection[Any]) -> None:
    installed.execute(
        "CREATE FUNCTION messages.foreign_one() RETURNS int LANGUAGE sql SECURITY DEFINER "
        "SET work_mem = '1MB' AS 'SELECT 1'"
    )

    schema.migrate(installed)

    assert ("foreign_one", "work_mem=1MB") in settings(installed)
