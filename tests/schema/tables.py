"""The tables, types, domains, indexes, constraints and sequences of the schema and its initial rows, one per line.

`python -m tests.schema.tables` writes tables.txt, which a test compares with the installed schema.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from pgrouse.database.install import schema
from tests.server.servers import EMBEDDED, Servers

PAGE = Path(__file__).parent / "tables.txt"

# Objects that depend on the day (partitions) or belong elsewhere (the ledger) are left out.
OURS: LiteralString = "c.relnamespace = 'messages'::regnamespace AND NOT c.relispartition AND c.relname <> 'migration'"
QUERIES: dict[str, LiteralString] = {
    "table": f"""
        SELECT c.oid::regclass::text, c.relkind::text, c.relpersistence::text, coalesce(pg_get_partkeydef(c.oid), ''),
          coalesce(array_to_string(c.reloptions, ', '), ''), coalesce(array_to_string(t.reloptions, ', '), '')
        FROM pg_class AS c LEFT JOIN pg_class AS t ON t.oid = c.reltoastrelid
        WHERE {OURS} AND c.relkind IN ('r', 'p', 'c')
    """,
    "replica identity": f"""
        SELECT c.oid::regclass::text, c.relreplident::text FROM pg_class AS c
        WHERE {OURS} AND c.relkind IN ('r', 'p') AND c.relreplident <> 'd'
    """,
    "column": f"""
        SELECT c.oid::regclass || '.' || a.attname, a.attnum::text, format_type(a.atttypid, a.atttypmod),
          CASE WHEN a.attnotnull THEN 'not null' ELSE '' END, nullif(a.attcollation, 0)::regcollation::text,
          a.attidentity::text || a.attgenerated::text, coalesce(pg_get_expr(d.adbin, d.adrelid), '')
        FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE {OURS} AND c.relkind IN ('r', 'p', 'c')
    """,
    "index": f"""
        SELECT pg_get_indexdef(i.indexrelid)
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid
        WHERE {OURS}
    """,
    "constraint": f"""
        SELECT c.oid::regclass::text, o.conname::text, pg_get_constraintdef(o.oid)
        FROM pg_constraint AS o JOIN pg_class AS c ON c.oid = o.conrelid
        WHERE {OURS} AND o.contype <> 'n' AND o.contype <> 't'
    """,
    "domain": """
        SELECT t.oid::regtype::text, format_type(t.typbasetype, t.typtypmod),
               nullif(t.typcollation, 0)::regcollation::text,
          coalesce(o.conname::text, ''), coalesce(pg_get_constraintdef(o.oid), '')
        FROM pg_type AS t LEFT JOIN pg_constraint AS o ON o.contypid = t.oid
        WHERE t.typnamespace = 'messages'::regnamespace AND t.typtype = 'd'
    """,
    "sequence": """
        SELECT s.sequencename::text, s.data_type::text, s.start_value::text, s.min_value::text, s.last_value::text
        FROM pg_sequences AS s WHERE s.schemaname = 'messages'
    """,
    "row of topic": "SELECT (to_jsonb(t) - 'updated_at')::text FROM messages.topic AS t",
    "row of alert_threshold": "SELECT to_jsonb(b)::text FROM messages.alert_threshold AS b",
    "row of mutex": "SELECT to_jsonb(m)::text FROM messages.mutex AS m",
    "row of low_water_mark": "SELECT to_jsonb(m)::text FROM messages.low_water_mark AS m",
}


def tables(conn: psycopg.Connection[Any]) -> list[str]:
    """Return the lines, sorted. Servers quote names differently: no quotes."""
    lines = []
    with conn.transaction():
        conn.execute("SET LOCAL timezone = 'UTC'")
        for what, query in QUERIES.items():
            for row in conn.execute(query):
                line = " | ".join([what, *(each or "" for each in row)])
                lines.append(" ".join(line.replace('"', "").split()))
    return sorted(lines)


def main() -> None:
    """Write the file."""
    with closing(Servers()) as servers, servers.server(EMBEDDED).new_database() as database:
        conn = database.connect()
        schema.migrate(conn)
        PAGE.write_text("".join(f"{line}\n" for line in tables(conn)))


if __name__ == "__main__":
    main()
