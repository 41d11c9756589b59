"""What is installed in a database."""

from __future__ import annotations

from typing import Any

import psycopg

from pgrouse.database.install import schema

# Everything that a migration could change: each object with what defines it.
OBJECTS = """
    SELECT 'relation', c.oid::regclass::text, c.relkind::text || coalesce(pg_get_viewdef(c.oid), '')
    FROM pg_class AS c WHERE c.relnamespace = 'messages'::regnamespace
    UNION ALL
    SELECT 'column', a.attrelid::regclass || '.' || a.attname, format_type(a.atttypid, a.atttypmod) || a.attnotnull
    FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'messages'::regnamespace AND a.attnum > 0
    UNION ALL
    SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid)
    FROM pg_proc AS p WHERE p.pronamespace = 'messages'::regnamespace
    UNION ALL
    SELECT 'constraint', o.conrelid::regclass || '.' || o.conname, pg_get_constraintdef(o.oid)
    FROM pg_constraint AS o WHERE o.connamespace = 'messages'::regnamespace
    UNION ALL
    SELECT 'trigger', t.tgrelid::regclass || '.' || t.tgname, pg_get_triggerdef(t.oid)
    FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
    WHERE c.relnamespace = 'messages'::regnamespace AND NOT t.tgisinternal
    UNION ALL
    SELECT 'grant', c.oid::regclass::text, coalesce(c.relacl::text, '') FROM pg_class AS c
    WHERE c.relnamespace = 'messages'::regnamespace
    UNION ALL
    SELECT 'grant', p.oid::regprocedure::text, coalesce(p.proacl::text, '') FROM pg_proc AS p
    WHERE p.pronamespace = 'messages'::regnamespace
"""


def objects(conn: psycopg.Connection[Any]) -> set[Any]:
    return set(conn.execute(OBJECTS).fetchall())


def has_schema(conn: psycopg.Connection[Any]) -> bool:
    return conn.execute("SELECT to_regnamespace('messages') IS NOT NULL").fetchone() == (True,)


def every_script() -> list[str]:
    return [each.name for each in schema.scripts()]


def works(conn: psycopg.Connection[Any]) -> bool:
    """Whether a message can be published, claimed and completed."""
    conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('t', '1')")
    held = conn.execute("SELECT id, claim_id FROM messages.claim('w', ARRAY['t'], 1)").fetchall()
    lost = conn.execute("SELECT messages.complete(%s, %s)", [[i for i, _ in held], [c for _, c in held]]).fetchone()
    return len(held) == 1 and lost == ([],)


def owner(conn: psycopg.Connection[Any]) -> str:
    row = conn.execute(
        "SELECT r.rolname FROM pg_namespace AS n JOIN pg_roles AS r ON r.oid = n.nspowner WHERE n.nspname = 'messages'"
    ).fetchone()
    assert row is not None
    return str(row[0])
