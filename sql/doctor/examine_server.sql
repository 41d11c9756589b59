-- Checks that the server is fit to keep messages: its version, durability, autovacuum, and transaction id wraparound.
-- It uses the caller's rights.
--
-- Result: for each code what is wrong with it, by object, or one row with level `ok`. The codes are `server_version`,
-- `durability`, `autovacuum`, `wraparound`.
-- Errors: none.
-- Locks: none.
-- Called by: doctor, `pgrouse doctor`.
CREATE OR REPLACE FUNCTION messages.examine_server()
RETURNS TABLE (code text, level text, what text, fix text)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_major  integer := current_setting('server_version_num')::integer / 10000;
  v_end    date;
  v_left   bigint;
BEGIN
  -- The last release of each major version; of a newer one nothing is known.
  v_end := CASE v_major WHEN 15 THEN date '2027-11-11' WHEN 16 THEN date '2028-11-09' WHEN 17 THEN date '2029-11-08'
    WHEN 18 THEN date '2030-11-14' END;
  code := 'server_version';
  level := CASE WHEN v_major < 15 THEN 'fail' WHEN v_end < messages.now() THEN 'warn' ELSE 'ok' END;
  what := format('PostgreSQL %s', current_setting('server_version')) || CASE level
    WHEN 'fail' THEN ', which pgrouse does not support: it needs 15'
    WHEN 'warn' THEN format(' has had no fixes since %s', v_end) ELSE '' END;
  fix := CASE WHEN level <> 'ok' THEN 'upgrade the server: https://www.postgresql.org/support/versioning/' END;
  RETURN NEXT;

  code := 'durability';
  RETURN QUERY
    SELECT code, s.level, format('%s is off: %s', s.name, s.effect),
           format('ALTER SYSTEM SET %s = on; SELECT pg_reload_conf();', s.name)
    FROM (VALUES
      ('fsync', 'fail', 'a crash of the machine may destroy the database'),
      ('full_page_writes', 'fail', 'a crash of the machine may leave torn pages, and the database broken'),
      ('synchronous_commit', 'warn', 'a crash may undo the publishes and results of the last moments')
    ) AS s (name, level, effect)
    -- Neon's storage does it without: there both are off.
    WHERE current_setting(s.name) = 'off' AND (s.level = 'warn' OR current_setting('neon.timeline_id', true) IS NULL);
  IF NOT FOUND THEN
    RETURN QUERY SELECT code, 'ok', 'what was committed is on disk', NULL::text;
  END IF;

  code := 'autovacuum';
  RETURN QUERY
    SELECT code, 'fail', format('%s is off: dead rows stay, and claims get slower day by day', s.name),
           format('ALTER SYSTEM SET %s = on; SELECT pg_reload_conf();', s.name)
    FROM (VALUES ('autovacuum'), ('track_counts')) AS s (name)
    WHERE current_setting(s.name) = 'off';
  IF NOT FOUND THEN
    RETURN QUERY SELECT code, 'ok', 'is on', NULL::text;
  END IF;

  code := 'wraparound';
  SELECT 2147483648 - greatest(age(d.datfrozenxid), mxid_age(d.datminmxid)) INTO v_left FROM pg_database AS d
  WHERE d.datname = current_database();
  level := CASE WHEN v_left < 100000000 THEN 'fail' WHEN v_left < 1000000000 THEN 'warn' ELSE 'ok' END;
  what := format('%s million transactions are left', v_left / 1000000);
  what := what || CASE WHEN level <> 'ok' THEN '; then the server refuses to write' ELSE '' END;
  fix := CASE WHEN level <> 'ok'
    THEN 'end what holds the oldest snapshot (see snapshot_held), then: VACUUM (FREEZE);' END;
  RETURN NEXT;
END
$$;
