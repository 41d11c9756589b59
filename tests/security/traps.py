"""Traps: every function and operator of PostgreSQL once more, in a schema that comes first in the path of the database.

An attacker can only create signatures that match better; here every name that is looked up in the path is caught, so
the tests need not list such signatures. Each trap raises an error that names it.
"""

from __future__ import annotations

from typing import Any

import psycopg

MARK = "caught by a trap"
PATH = "traps, pg_catalog"

# Functions of pseudo-types are in LANGUAGE internal: only there may an argument be "any". any_in raises an error of its
# own.
MAKE = """
CREATE SCHEMA traps;
GRANT USAGE ON SCHEMA traps TO PUBLIC;
SET search_path = pg_catalog, pg_temp;
SET client_min_messages = error;
DO $do$
DECLARE
  v_it record;
BEGIN
  FOR v_it IN
    SELECT p.oid, p.proname, p.proretset, p.prorettype::regtype AS result,
           (SELECT string_agg(CASE WHEN p.provariadic <> 0 AND a.at = p.pronargs THEN 'VARIADIC ' ELSE '' END
             || a.type::regtype::text, ', ' ORDER BY a.at)
            FROM unnest(p.proargtypes) WITH ORDINALITY AS a (type, at)) AS arguments,
           '"any"'::regtype = ANY (p.proargtypes::regtype[]) AS takes_any
    FROM pg_proc AS p
    WHERE p.pronamespace = 'pg_catalog'::regnamespace
  LOOP
    BEGIN
      IF v_it.takes_any THEN
        EXECUTE format(
          'CREATE FUNCTION traps.%I(%s) RETURNS %s LANGUAGE internal AS ''any_in''', v_it.proname, v_it.arguments,
          v_it.result);
      ELSE
        EXECUTE format(
          'CREATE FUNCTION traps.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS $t$ BEGIN RAISE EXCEPTION %L; END $t$',
          v_it.proname, v_it.arguments, CASE WHEN v_it.proretset THEN 'SETOF' ELSE '' END, v_it.result,
          'caught by a trap: ' || replace(v_it.oid::regprocedure::text, '%', '%%'));
      END IF;
    EXCEPTION WHEN invalid_function_definition OR feature_not_supported OR undefined_object OR datatype_mismatch THEN
      NULL; -- cannot be called from SQL
    END;
  END LOOP;
  FOR v_it IN
    SELECT o.oid, o.oprname, o.oprleft::regtype::text AS l, o.oprright::regtype::text AS r, o.oprleft,
           o.oprresult::regtype AS result
    FROM pg_operator AS o
    WHERE o.oprnamespace = 'pg_catalog'::regnamespace
  LOOP
    BEGIN
      EXECUTE format(
        'CREATE FUNCTION traps.op_%s(%s) RETURNS %s LANGUAGE plpgsql AS $t$ BEGIN RAISE EXCEPTION %L; END $t$',
        v_it.oid, concat_ws(', ', CASE WHEN v_it.oprleft <> 0 THEN v_it.l END, v_it.r), v_it.result,
        'caught by a trap: ' || replace(v_it.oid::regoperator::text, '%', '%%'));
      EXECUTE format('CREATE OPERATOR traps.%s (%s RIGHTARG = %s, FUNCTION = traps.op_%s)',
        v_it.oprname, CASE WHEN v_it.oprleft <> 0 THEN 'LEFTARG = ' || v_it.l || ',' ELSE '' END, v_it.r, v_it.oid);
    EXCEPTION WHEN invalid_function_definition OR feature_not_supported THEN
      NULL;
    END;
  END LOOP;
  CREATE FUNCTION traps.caught(p_what pg_catalog.text) RETURNS pg_catalog.bool LANGUAGE plpgsql
  AS $t$ BEGIN RAISE EXCEPTION 'caught by a trap: %', p_what; END $t$;
  FOR v_it IN
    SELECT t.typname FROM pg_type AS t
    WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype = 'b' AND t.typelem = 0
  LOOP
    EXECUTE format(
      'CREATE DOMAIN traps.%1$I AS pg_catalog.%1$I CHECK (traps.caught(%2$L))', v_it.typname, 'type ' || v_it.typname);
  END LOOP;
  FOR v_it IN
    SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v')
  LOOP
    BEGIN
      EXECUTE format(
        'CREATE VIEW traps.%1$I AS SELECT * FROM pg_catalog.%1$I WHERE traps.caught(%2$L)', v_it.relname,
        'table ' || v_it.relname);
      EXECUTE format('GRANT SELECT ON traps.%I TO PUBLIC', v_it.relname);
    EXCEPTION WHEN invalid_table_definition THEN
      NULL; -- it has a column that no view can have
    END;
  END LOOP;
END
$do$;
RESET search_path;
RESET client_min_messages;
"""


def plant(conn: psycopg.Connection[Any]) -> None:
    """Set the traps and make every later session of the database look them up first."""
    conn.execute(MAKE.encode())
    set_path(conn, conn.info.dbname)


def set_path(conn: psycopg.Connection[Any], dbname: str) -> None:
    """Make every later session of a database with traps look them up first."""
    conn.execute(f"ALTER DATABASE {dbname} SET search_path = {PATH}".encode())


def caught(error: BaseException | str) -> bool:
    """Whether an error, or any text, comes from a trap."""
    return (
        MARK in str(error) or "cannot accept a value of type any" in str(error) or "is not an aggregate" in str(error)
    )
