-- The settings of the session while the schema is installed, until the end of the transaction: the result does not
-- depend on who installs it.
-- Called by: pgrouse migrate and docker/postgres/install-schema.sh, before any name is looked up.
-- The files next to this one and cron/role.sql can also be run by themselves: each is one statement that first fixes
-- what it needs.
DO LANGUAGE plpgsql $$
BEGIN
  SET LOCAL search_path = pg_catalog, pg_temp;
  -- These decide how the scripts are read.
  SET LOCAL client_encoding = UTF8;
  SET LOCAL standard_conforming_strings = on;
  SET LOCAL array_nulls = on;
  SET LOCAL transform_null_equals = off;
  SET LOCAL DateStyle = ISO;
  SET LOCAL IntervalStyle = postgres;
  SET LOCAL TimeZone = UTC;
  SET LOCAL bytea_output = hex;
  SET LOCAL extra_float_digits = 1;
  SET LOCAL quote_all_identifiers = off;
  SET LOCAL plpgsql.extra_errors = none;
  -- Functions call each other; their order in the folder does not matter.
  SET LOCAL check_function_bodies = off;
  -- These decide how rows are stored.
  SET LOCAL default_tablespace = '';
  SET LOCAL default_table_access_method = heap;
  -- Rows that a policy hides are an error.
  SET LOCAL row_security = off;
  SET LOCAL client_min_messages = warning;
  -- It takes as long as it needs. PostgreSQL 15 and 16 have no transaction_timeout.
  SET LOCAL statement_timeout = 0;
  IF current_setting('transaction_timeout', true) IS NOT NULL THEN
    PERFORM set_config('transaction_timeout', '0', true);
  END IF;
  -- Triggers and foreign keys act during the installation. The database or the role may have a value that this role may
  -- not change.
  IF current_setting('session_replication_role') <> 'origin'
    AND has_parameter_privilege('session_replication_role', 'SET') THEN
    SET LOCAL session_replication_role = origin;
  END IF;
END
$$;
