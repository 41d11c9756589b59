"""Messages live under every setting of a database or a role as they do without it, and in every locale and encoding.

The settings are those that can change the meaning of a statement.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.environments.life import ENDED, TEXT, Life, configure
from tests.environments.locale_database import database_of
from tests.server.postgres import Database, Postgres

# Settings that do not disturb each other, together: each database has to be filled.
PROFILES: dict[str, dict[str, str]] = {
    "texts": {
        "DateStyle": "German, DMY", "IntervalStyle": "iso_8601", "TimeZone": "America/St_Johns",
        "bytea_output": "escape",
        "extra_float_digits": "-15", "array_nulls": "off", "standard_conforming_strings": "off",
        "quote_all_identifiers": "on",
        "transform_null_equals": "on", "client_encoding": "LATIN1", "xmloption": "document", "row_security": "off",
        "check_function_bodies": "off", "backslash_quote": "off", "default_toast_compression": "pglz",
        # Plans that cost more are compiled.
        "jit_above_cost": "10000", "jit_optimize_above_cost": "-1", "jit_inline_above_cost": "-1",
    },
    "rules": {
        "DateStyle": "SQL, DMY", "IntervalStyle": "sql_standard", "TimeZone": "Pacific/Kiritimati",
        "search_path": "nowhere",
        "default_transaction_isolation": "serializable", "default_transaction_deferrable": "on",
        "synchronous_commit": "off",
        "plpgsql.variable_conflict": "use_column", "plpgsql.extra_errors": "all", "client_min_messages": "debug1",
        "commit_delay": "1000",
        "default_table_access_method": "heap", "escape_string_warning": "off", "lc_messages": "C",
        "session_replication_role": "local",
    },
    "times": {
        "statement_timeout": "3s", "lock_timeout": "2s", "idle_in_transaction_session_timeout": "5s",
        "idle_session_timeout": "700ms",
    },
    # Nothing is compiled here: it would be every statement, since plans without indexes cost that much.
    "plans": {
        "enable_indexscan": "off", "enable_indexonlyscan": "off", "enable_bitmapscan": "off", "enable_nestloop": "off",
        "enable_memoize": "off",
        "plan_cache_mode": "force_custom_plan", "jit": "off",
        "work_mem": "64kB", "join_collapse_limit": "1", "from_collapse_limit": "1", "geqo_threshold": "2",
        "parallel_setup_cost": "0", "parallel_tuple_cost": "0",
        "min_parallel_table_scan_size": "0", "cursor_tuple_fraction": "1", "temp_buffers": "800kB",
    },
    # Every statement is compiled, and not optimized as well: that would take a second for each.
    "compiled": {"jit_above_cost": "0", "jit_optimize_above_cost": "-1", "jit_inline_above_cost": "-1"},
}  # fmt: skip
# By the version that has them first.
NEWER = {"times": {17: {"transaction_timeout": "4s"}}, "rules": {16: {"createrole_self_grant": "set, inherit"}}}


def settings_of(profile: str, version: int) -> dict[str, str]:
    """Return the settings of a profile that this version of the server has."""
    found = dict(PROFILES[profile])
    for first, settings in NEWER.get(profile, {}).items():
        found |= settings if version >= first else {}
    if profile == "plans":
        found["debug_parallel_query" if version >= 16 else "force_parallel_mode"] = "on"
    return found


# Each profile in a database of another locale, if it does not set the encoding itself.
LOCALES = {"texts": "usual", "rules": "Turkish", "times": "no encoding", "plans": "Latin 1", "compiled": "usual"}
# What users say on their connection: one who waits for longer than a setting permits, and, in a database without an
# encoding, which one is meant, since psycopg takes no bytes for text.
OPTIONS = {"times": {"options": "-c idle_session_timeout=0", "client_encoding": "utf8"}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "profile", [pytest.param(each, marks=pytest.mark.long) if each == "compiled" else each for each in PROFILES]
)
def test_messages_live_as_usual(profile: str, server: Postgres, life_in: Callable[[Database], Life]) -> None:
    with database_of(server, LOCALES[profile]) as database:
        configure(database, settings_of(profile, server.version))
        life = life_in(database)
        life.options = OPTIONS.get(profile, {})

        life.install()
        daemon = life.run()
        life.publish({"text": "äß", "float": 0.1} if LOCALES[profile] == "Latin 1" else TEXT)
        ended = life.finish(daemon)
        life.look()
        life.leave(daemon)

    assert ended == ENDED
