-- The schema and the ledger of what has been applied to it.
-- Called by: pgrouse migrate, first of all, under its advisory lock. `IF NOT EXISTS` alone would race; the lock does
-- not.
-- Locks: none that outlives the statement.
DO LANGUAGE plpgsql $$
BEGIN
  SET LOCAL search_path = pg_catalog, pg_temp;
  SET LOCAL default_tablespace = '';
  SET LOCAL default_table_access_method = heap;
  CREATE SCHEMA IF NOT EXISTS messages;
  CREATE TABLE IF NOT EXISTS messages.migration (
    kind        text        NOT NULL CHECK (kind IN ('migration', 'object')),
    name        text        NOT NULL,
    digest      text        NOT NULL,
    version     text        NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_by  text        NOT NULL DEFAULT session_user,
    PRIMARY KEY (kind, name)
  );
END
$$;
