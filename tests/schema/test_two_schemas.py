"""Two queues are installed in one database, and nothing of one refers to the other."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from pgrouse import migrate, publish, use_schema
from pgrouse.database.install import schema
from pgrouse.database.schema_name import schema_name
from pgrouse.errors import ConfigError, SchemaMismatch
from tests.schema.installed import objects, works
from tests.server.postgres import Database

QUEUE = 'My "Queue"'
COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
# Everything of a schema that has a text.
TEXTS = """
    SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid) FROM pg_proc AS p
    WHERE p.pronamespace = n.oid AND p.prokind = 'f'
    UNION ALL SELECT c.relname::text, pg_get_viewdef(c.oid) FROM pg_class AS c
    WHERE c.relnamespace = n.oid AND c.relkind = 'v'
    UNION ALL SELECT c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod)
      || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
    FROM pg_class AS c
    JOIN pg_attribute AS a ON a.attrelid = c.oid
    LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = n.oid AND a.attnum > 0
    UNION ALL SELECT o.conname::text, pg_get_constraintdef(o.oid) FROM pg_constraint AS o WHERE o.connamespace = n.oid
    UNION ALL SELECT t.tgname::text, pg_get_triggerdef(t.oid) FROM pg_trigger AS t
    JOIN pg_class AS c ON c.oid = t.tgrelid WHERE c.relnamespace = n.oid AND NOT t.tgisinternal
    UNION ALL SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) FROM pg_index AS i
    JOIN pg_class AS c ON c.oid = i.indrelid WHERE c.relnamespace = n.oid
    UNION ALL SELECT c.relname::text, c.relacl::text FROM pg_class AS c WHERE c.relnamespace = n.oid
    UNION ALL SELECT p.proname::text, p.proacl::text FROM pg_proc AS p WHERE p.pronamespace = n.oid
    UNION ALL SELECT c.relname || ' rule', r.polname::text FROM pg_policy AS r JOIN pg_class AS c ON c.oid = r.polrelid
    WHERE c.relnamespace = n.oid
"""
# What is bound to an object of another schema.
BOUND = """
    WITH of_schema AS (
      SELECT 'pg_class'::regclass AS class, c.oid, c.relnamespace AS schema FROM pg_class AS c
      UNION ALL SELECT 'pg_proc'::regclass, p.oid, p.pronamespace FROM pg_proc AS p
      UNION ALL SELECT 'pg_type'::regclass, t.oid, t.typnamespace FROM pg_type AS t
      UNION ALL SELECT 'pg_rewrite'::regclass, r.oid, c.relnamespace
      FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class
      UNION ALL SELECT 'pg_attrdef'::regclass, d.oid, c.relnamespace
      FROM pg_attrdef AS d JOIN pg_class AS c ON c.oid = d.adrelid
      UNION ALL SELECT 'pg_constraint'::regclass, o.oid, o.connamespace FROM pg_constraint AS o
      UNION ALL SELECT 'pg_trigger'::regclass, t.oid, c.relnamespace
      FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
    )
    SELECT pg_describe_object(d.classid, d.objid, d.objsubid),
           pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
    FROM pg_depend AS d
    JOIN of_schema AS a ON a.class = d.classid AND a.oid = d.objid
    JOIN of_schema AS b ON b.class = d.refclassid AND b.oid = d.refobjid
    WHERE a.schema <> b.schema
      AND ARRAY[a.schema, b.schema] <@ (SELECT array_agg(n.oid) FROM pg_namespace AS n WHERE n.nspname = ANY (%s))
"""


@pytest.fixture(scope="module")
def both(shared: Database) -> Database:
    """A database with two queues."""
    migrate(shared.dsn, schema=QUEUE)
    return shared


@pytest.mark.every_server
def test_nothing_of_a_queue_refers_to_the_other(both: Database) -> None:
    conn = both.connect()
    texts = conn.execute(
        f"SELECT t.* FROM pg_namespace AS n CROSS JOIN LATERAL ({TEXTS}) AS t (name, text) WHERE n.nspname = %s",
        [QUEUE],
    ).fetchall()

    found = [
        (name, each[0])
        for name, text in texts
        for each in re.finditer(
            r"(?<![\w\"])messages(\.|_[a-z]+\b).{0,30}|.{0,30}'messages'", COMMENTS.sub("", text or "")
        )
    ]

    assert len(texts) > 1000
    # There it is the word, as a key of JSON.
    keys = ("jsonb_build_object('messages'", "'total', g.count, 'messages'")
    assert [(name, text) for name, text in found if not text.endswith(keys)] == []
    assert conn.execute(BOUND, [["messages", QUEUE]]).fetchall() == []


@pytest.mark.every_server
def test_both_queues_work_and_are_up_to_date(both: Database) -> None:
    for name in ("messages", QUEUE):
        with use_schema(name):
            conn = both.connect()
            assert works(conn)
            assert schema.is_up_to_date(conn)
            schema.check(conn)
            assert schema.migrate(conn) == []


def test_a_second_queue_changes_nothing_of_the_first(both: Database, database: Database) -> None:
    assert objects(both.connect()) == objects(database.connect())


def test_the_same_is_installed_under_each_name(both: Database) -> None:
    ledgers, counted = [], []
    for name in ("messages", QUEUE):
        with use_schema(name):
            conn = both.connect()
            # The digests are those of the files.
            ledgers.append(conn.execute("SELECT kind, name, digest FROM messages.migration ORDER BY 1, 2").fetchall())
            counted.append(
                conn.execute(
                    """
                    SELECT (SELECT count(*) FROM pg_proc AS p WHERE p.pronamespace = n.oid),
                           (SELECT count(*) FROM pg_class AS c WHERE c.relnamespace = n.oid),
                           (SELECT array_agg(p.proname || array_to_string(p.proconfig, ','))
                            FROM pg_proc AS p WHERE p.pronamespace = n.oid AND p.proconfig IS NOT NULL)
                    FROM pg_namespace AS n WHERE n.oid = 'messages'::regnamespace
                    """
                ).fetchone()
            )

    assert ledgers[0] == ledgers[1]
    assert counted[0][:2] == counted[1][:2]
    assert sorted(counted[0][2]) == sorted(counted[1][2])


def test_a_plain_role_installs_a_queue_of_its_own_name(plain_owner: psycopg.Connection[Any]) -> None:
    assert migrate(plain_owner, schema="orders")

    with use_schema("orders"):
        assert plain_owner.execute(
            "SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'orders'"
        ).fetchone() == ('"plain Owner"',)


def test_a_name_whose_settings_belong_to_an_extension_is_refused(empty_database: Database) -> None:
    with pytest.raises(ConfigError, match=r"database\.schema.*plpgsql"):
        migrate(empty_database.dsn, schema="plpgsql")

    assert empty_database.connect().execute("SELECT to_regnamespace('plpgsql')").fetchone() == (None,)


@pytest.mark.every_server
def test_a_renamed_schema_is_refused_and_works_under_its_first_name(database: Database) -> None:
    conn = database.connect()
    published = publish(conn, "t", 1)
    conn.execute(f"ALTER SCHEMA messages RENAME TO {schema_name(QUEUE).quoted}".encode())
    roles = conn.execute("SELECT count(*) FROM pg_roles").fetchone()

    with use_schema(QUEUE):
        renamed = database.connect()
        for refuse in (schema.migrate, schema.check, schema.is_up_to_date):
            with pytest.raises(SchemaMismatch, match='the schema `My "Queue"` was messages when') as refused:
                refuse(renamed)
    assert conn.execute("SELECT count(*) FROM pg_roles").fetchone() == roles
    (fix,) = re.findall("run (ALTER SCHEMA .*), and set", str(refused.value))
    conn.execute(fix.encode())

    schema.check(conn)
    assert schema.migrate(conn) == []
    assert conn.execute("SELECT id FROM messages.message").fetchall() == [(published,)]
    assert works(conn)
