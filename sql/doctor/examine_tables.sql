-- Checks what makes claims slow: dead rows, bloated indexes, lost autovacuum settings, sequences that run out.
--
-- Arguments: a table with fewer dead rows than `p_dead_rows`, or an index smaller than `p_bytes`, is not reported.
-- Result: for each code what is wrong with it, by object, or one row with level `ok`. The codes are `dead_rows`,
-- `index_bloat`, `table_settings`, `identities`.
-- Errors: none.
-- Locks: none.
-- Cost: the catalog and the statistics, no table.
-- Called by: doctor, `pgrouse doctor`.
CREATE OR REPLACE FUNCTION messages.examine_tables(p_dead_rows bigint DEFAULT 100000, p_bytes bigint DEFAULT 134217728)
RETURNS TABLE (code text, level text, what text, fix text)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN QUERY
  WITH found (code, level, what, fix) AS (
    SELECT 'dead_rows', CASE WHEN s.n_dead_tup > 10 * p_dead_rows THEN 'fail' ELSE 'warn' END,
           format('messages.%s has %s dead rows for %s live ones; vacuumed last: %s', s.relname, s.n_dead_tup,
             s.n_live_tup,
             coalesce(to_char(greatest(s.last_vacuum, s.last_autovacuum), 'YYYY-MM-DD HH24:MI TZ'), 'never')),
           format('see snapshot_held and autovacuum, then: VACUUM messages.%I;', s.relname)
    FROM pg_stat_user_tables AS s
    WHERE s.schemaname = 'messages' AND s.n_dead_tup > greatest(p_dead_rows, s.n_live_tup / 2)
    UNION ALL
    -- An entry of the widest index takes some 100 bytes; what was large once and is nearly empty now is what claims
    -- walk through.
    SELECT 'index_bloat', 'warn',
           format(
             'messages.%s has %s for %s rows', i.indexrelname, pg_size_pretty(pg_relation_size(i.indexrelid)), r.live),
           format('REINDEX INDEX CONCURRENTLY messages.%I;', i.indexrelname)
    FROM pg_stat_user_indexes AS i
    JOIN pg_stat_user_tables AS s ON s.relid = i.relid
    JOIN pg_class AS c ON c.oid = i.relid
    -- After a crash the statistics begin at nothing.
    CROSS JOIN LATERAL (SELECT greatest(s.n_live_tup, c.reltuples::bigint, 0) AS live) AS r
    WHERE i.schemaname = 'messages' AND pg_relation_size(i.indexrelid) > p_bytes
      AND pg_relation_size(i.indexrelid) > 5 * 100 * greatest(r.live, 1)
    UNION ALL
    SELECT 'table_settings', 'warn', format('%s of messages.%s is gone', k.setting, k.name),
           format('ALTER TABLE messages.%I SET (%s = %s);', k.name, k.setting, k.value)
    FROM (VALUES
      ('message', 'fillfactor', '75'), ('message', 'autovacuum_vacuum_scale_factor', '0'),
      ('message', 'autovacuum_vacuum_threshold', '5000'),
      ('message', 'autovacuum_vacuum_cost_delay', '0'), ('message', 'autovacuum_vacuum_insert_scale_factor', '0'),
      ('message', 'autovacuum_analyze_scale_factor', '0'), ('sleeper', 'autovacuum_vacuum_scale_factor', '0'),
      ('low_water', 'autovacuum_vacuum_scale_factor', '0'), ('breaker_count', 'autovacuum_vacuum_scale_factor', '0'),
      ('depth_change', 'autovacuum_vacuum_scale_factor', '0'),
      ('dead_count', 'autovacuum_vacuum_scale_factor', '0')) AS k (name, setting, value)
    JOIN pg_class AS c ON c.relnamespace = 'messages'::regnamespace AND c.relname = k.name
    WHERE NOT EXISTS (SELECT FROM unnest(c.reloptions) AS o (given) WHERE split_part(o.given, '=', 1) = k.setting)
    UNION ALL
    SELECT 'table_settings', 'fail', format('autovacuum is switched off for messages.%s', c.relname),
           format('ALTER TABLE messages.%I RESET (autovacuum_enabled);', c.relname)
    FROM pg_class AS c
    WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind = 'r'
      AND EXISTS (
        SELECT FROM unnest(c.reloptions) AS o (given)
        WHERE lower(o.given COLLATE "C") ~ '^autovacuum_enabled=(f|n|0|off)')
    UNION ALL
    SELECT 'identities', CASE WHEN q.taken > 0.99 THEN 'fail' ELSE 'warn' END,
           format('messages.%s has given out %s %% of its numbers', q.sequencename, round(q.taken::numeric * 100, 1)),
           format(
             'find out why it is so high: ALTER SEQUENCE messages.%I RESTART; then above the largest id in use',
             q.sequencename)
    FROM (
      SELECT s.sequencename, s.last_value::double precision / s.max_value AS taken
      FROM pg_sequences AS s
      WHERE s.schemaname = 'messages' AND EXISTS (
        SELECT FROM pg_depend AS d
        WHERE d.objid = format('messages.%I', s.sequencename)::regclass AND d.classid = 'pg_class'::regclass
          AND d.deptype = 'i')
    ) AS q
    WHERE q.taken > 0.9
  )
  SELECT f.* FROM found AS f
  UNION ALL
  SELECT c.code, 'ok', c.said, NULL
  FROM (VALUES
    ('dead_rows', 'not too many in any table'),
    ('index_bloat', 'no index is much larger than its rows need'),
    ('table_settings', 'as they were installed'),
    ('identities', 'enough numbers are left')) AS c (code, said)
  WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.code = c.code);
END
$$;
