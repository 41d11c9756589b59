"""The settings of pgrouse's sessions, whatever the server, the database, the role or the environment sets.

They decide what a statement means, what it returns, or how long it may take. The first statement of each pgrouse
connection sets them. Two kinds of connections are left alone: sessions that are shared (behind a pooler in transaction
mode), and connections of users and handlers. There `check` reports what does not fit, and a transaction may set them
for itself. docs/operating/environments.md lists them, and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from pgrouse.database import connection_schema, schema_name, search_path
from pgrouse.errors import ConfigError

# Settings that decide what a statement means and what it returns.
MEANING = {
    "search_path": search_path.PATH,
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "array_nulls": "on",
    "standard_conforming_strings": "on",
    "transform_null_equals": "off",
    "quote_all_identifiers": "off",
    # With this, a policy that hides rows causes an error: a missing message would look like one that has ended.
    "row_security": "off",
}
# In a database without an encoding, psycopg returns bytes for texts otherwise.
ENCODING = {"client_encoding": "UTF8"}
# Limits of time: each wait of pgrouse has its own bound.
TIMEOUTS = {"statement_timeout": "0", "lock_timeout": "0", "transaction_timeout": "0", "idle_session_timeout": "0"}
# Above READ COMMITTED, ends are left to the tick, and settles may fail to serialize.
ISOLATION = {"default_transaction_isolation": "read committed"}
SETTINGS = MEANING | ENCODING | ISOLATION | TIMEOUTS
# These are not set here: a user sets the first on purpose, and only a superuser may set the second.
WRITING = {"transaction_read_only": "off", "session_replication_role": "origin"}
# The settings that pgrouse needs in every case. In a session that only pgrouse uses, only those of WRITING can differ.
NEEDED = {"DateStyle": "ISO", "IntervalStyle": "postgres", "array_nulls": "on"} | ISOLATION | WRITING
# The setting to change, if it has another name.
CHANGED_BY = {"transaction_read_only": "default_transaction_read_only"}

C = TypeVar("C", bound="psycopg.Connection[Any]")
A = TypeVar("A", bound="psycopg.AsyncConnection[Any]")


def _may_set(name: str) -> str:
    """Return the condition.

    A time limit in the connection string or PGOPTIONS is meant for this connection and stays.
    """
    given = (
        "SELECT FROM pg_catalog.pg_settings AS s "
        f"WHERE s.name OPERATOR(pg_catalog.=) '{name}' AND s.source OPERATOR(pg_catalog.=) 'client'"
    )
    return f"NOT EXISTS ({given})" if name in TIMEOUTS else "true"


def _set(settings: dict[str, str], *, local: bool) -> str:
    """Return the SQL that sets those that differ.

    A setting that this version of the server does not have is left out.
    """
    each = (
        f"CASE WHEN pg_catalog.current_setting('{name}', true) OPERATOR(pg_catalog.<>) '{value}'"
        f" THEN CASE WHEN {_may_set(name)} THEN pg_catalog.set_config('{name}', '{value}', "
        f"{str(local).lower()}) END END"
        for name, value in settings.items()
    )
    return f"SELECT {', '.join(each)}"


# For a session that only the caller uses: a pooler reports an invented process id. Not as startup options, which a
# pooler refuses.
SET_UP = f"{_set(SETTINGS, local=False)} WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %s".encode()
# For one transaction, as the first statement in it: also through a pooler.
LOCAL = _set(MEANING, local=True).encode()
FOUND = b"""
    SELECT s.name, pg_catalog.current_setting(s.name), pg_catalog.current_database()
    FROM pg_catalog.unnest(%s::pg_catalog.text[]) AS s (name)
    WHERE NOT pg_catalog.pg_is_in_recovery()
"""


def set_up(conn: C) -> C:
    """Set up a new pgrouse connection, for the schema that calls mean here; return it.

    A connection that fails is closed. Through a pooler it prepares no statements.
    """
    try:
        if conn.execute(SET_UP, [conn.info.backend_pid], prepare=False).rowcount == 0:
            conn.prepare_threshold = None
    except BaseException:
        conn.close()
        raise
    return connection_schema.use(conn, schema_name.current())


async def set_up_async(conn: A) -> A:
    """Do the same with an async connection."""
    try:
        if (await conn.execute(SET_UP, [conn.info.backend_pid], prepare=False)).rowcount == 0:
            conn.prepare_threshold = None
    except BaseException:
        await conn.close()
        raise
    return connection_schema.use(conn, schema_name.current())


def check(conn: psycopg.Connection[Any], needed: Mapping[str, str] = NEEDED) -> None:
    """Check that no setting of this session keeps the queue from working.

    Raises:
        ConfigError: a setting does; the text names it, and what changes it.
    """
    rows = psycopg.Cursor(conn).execute(FOUND, [list(needed)], prepare=False).fetchall()
    if problems := list(_problems(rows, conn.info.user)):
        raise ConfigError("; ".join(problems))


def _problems(rows: Iterable[tuple[Any, ...]], user: str) -> Iterator[str]:
    for name, value, database in rows:
        if value.split(",")[0] == NEEDED[name] or (name, value) == ("session_replication_role", "local"):
            continue
        setting = CHANGED_BY.get(name, name)
        change = sql.SQL("ALTER ROLE {} IN DATABASE {} SET {} = {}").format(
            sql.Identifier(user), sql.Identifier(database), sql.Identifier(setting), sql.Literal(NEEDED[name])
        )
        yield f"{setting} is {value} here, and pgrouse needs {NEEDED[name]}: {change.as_string()}"
