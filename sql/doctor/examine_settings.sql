-- Finds settings of the server, the database or the role that harm the queue. It uses the caller's rights.
--
-- Result: for each code what is wrong with it, by setting, or one row with level `ok`. The codes are `settings`,
-- `planner`.
-- Errors: none.
-- Locks: none.
-- Called by: doctor, `pgrouse doctor`.
CREATE OR REPLACE FUNCTION messages.examine_settings()
RETURNS TABLE (code text, level text, what text, fix text)
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  -- Settings that someone gave to the database or to a role; new sessions get them without a word.
  RETURN QUERY
  WITH harmful (code, name, harmless, level, effect) AS (VALUES
    ('settings', 'session_replication_role', 'origin,local', 'fail',
     'no trigger runs: a publish wakes no worker and no policy applies to it'),
    ('settings', 'default_transaction_read_only', 'off', 'fail', 'nothing can be published or claimed'),
    ('settings', 'default_transaction_isolation', 'read committed', 'warn',
     'every publish sends a notification, which makes publishers wait for each other'),
    ('settings', 'row_security', 'on', 'warn', 'queries may fail instead of being filtered'),
    ('planner', 'enable_indexscan', 'on', 'warn', 'claims read whole indexes or tables'),
    ('planner', 'enable_indexonlyscan', 'on', 'warn', 'claims read more pages than they need'),
    ('planner', 'enable_bitmapscan', 'on', 'warn', 'reports read whole tables'),
    ('planner', 'enable_tidscan', 'on', 'warn', 'claims read whole tables'),
    ('planner', 'plan_cache_mode', 'auto', 'warn', 'each call is planned again, or with a plan for other values'),
    ('planner', 'jit_above_cost', '>=10000', 'warn',
     'short statements are compiled, which takes longer than to run them')
  ), given AS (
    -- Sessions of pgrouse set those of the first kind for themselves: what counts is the value that other sessions
    -- begin with.
    SELECT h.*, CASE h.code WHEN 'settings' THEN s.reset_val ELSE s.setting END AS value, NULL::text AS whose
    FROM harmful AS h
    JOIN pg_settings AS s ON s.name = h.name
    UNION ALL
    SELECT h.*, substr(c.setting, length(h.name) + 2),
           CASE WHEN s.setrole = 0 AND s.setdatabase = 0 THEN 'ROLE ALL'
             ELSE concat_ws(' IN ', 'ROLE ' || quote_ident(r.rolname), 'DATABASE ' || quote_ident(d.datname)) END
    FROM pg_db_role_setting AS s
    CROSS JOIN unnest(s.setconfig) AS c (setting)
    JOIN harmful AS h ON c.setting LIKE h.name || '=%'
    LEFT JOIN pg_roles AS r ON r.oid = s.setrole
    LEFT JOIN pg_database AS d ON d.oid = s.setdatabase
    WHERE s.setdatabase IN (0, (SELECT o.oid FROM pg_database AS o WHERE o.datname = current_database()))
  ), wrong AS (
    SELECT DISTINCT ON (g.name, g.whose) g.*
    FROM given AS g
    WHERE CASE WHEN g.harmless LIKE '>=%'
      THEN g.value::float8 NOT BETWEEN -1 AND -1 AND g.value::float8 < substr(g.harmless, 3)::float8
               ELSE NOT g.value = ANY (string_to_array(g.harmless, ',')) END
    ORDER BY g.name, g.whose
  )
  SELECT w.code, w.level,
         format(
           '%s is %s%s: %s', w.name, w.value,
           ' for ' || replace(replace(w.whose, 'ROLE ', 'role '), 'DATABASE ', 'database '), w.effect),
         CASE WHEN w.whose IS NULL THEN format('ALTER SYSTEM RESET %s; SELECT pg_reload_conf();', w.name)
              ELSE format('ALTER %s RESET %s;', w.whose, w.name) END
  FROM wrong AS w
  -- A setting that a session has from its database or role is reported for these.
  WHERE w.whose IS NOT NULL OR NOT EXISTS (SELECT FROM wrong AS o WHERE o.name = w.name AND o.whose IS NOT NULL)
  UNION ALL
  SELECT c.code, 'ok', c.said, NULL
  FROM (
    VALUES ('settings', 'no setting stops sessions from working'), ('planner', 'no setting makes claims slow')
  ) AS c (code, said)
  WHERE NOT EXISTS (SELECT FROM wrong AS o WHERE o.code = c.code);
END
$$;
