-- Finds old snapshots: sessions, prepared transactions, standbys, replication slots. Younger dead rows cannot be
-- removed, so tables grow. It uses the caller's rights: a caller that is not a member of `pg_read_all_stats` gets a
-- report of what it cannot see.
--
-- Arguments: `p_held_for`: younger snapshots are not reported. `p_held_xids`, in transactions, applies to holders whose
-- age is unknown.
-- Result: the five oldest holders, or one row with level `ok`, of the code `snapshot_held`.
-- Errors: none.
-- Locks: none.
-- Called by: doctor, `pgrouse doctor`.
CREATE OR REPLACE FUNCTION messages.examine_snapshots(
  p_held_for interval DEFAULT '5 minutes', p_held_xids bigint DEFAULT 1000000
)
RETURNS TABLE (code text, level text, what text, fix text)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  c_dead_rows CONSTANT text := 'no dead row that is younger can be removed';
  v_now   timestamptz := messages.now();
  v_found boolean := false;
BEGIN
  code := 'snapshot_held';
  FOR level, what, fix IN
    SELECT CASE WHEN h.since < v_now - greatest(interval '1 hour', p_held_for) THEN 'fail' ELSE 'warn' END,
           format('%s has held a snapshot %s; %s', h.who,
             CASE WHEN h.since IS NULL THEN format('of %s transactions ago', h.xids)
               ELSE format('for %s s', round(extract(epoch FROM v_now - h.since))) END, h.effect),
           h.remedy
    FROM (
      SELECT format('process %s (%s)', a.pid, concat_ws(', ', a.usename, nullif(a.application_name, ''), a.state)),
             coalesce(a.xact_start, a.backend_start), age(a.backend_xmin)::bigint,
             format('SELECT pg_terminate_backend(%s);', a.pid), c_dead_rows
      FROM pg_stat_activity AS a
      WHERE a.backend_xmin IS NOT NULL AND a.datname = current_database() AND a.pid <> pg_backend_pid()
        AND coalesce(a.backend_type, 'client backend') IN (
          'client backend', 'parallel worker', 'pg_cron', 'background worker', 'logical replication worker')
      UNION ALL
      SELECT format('the standby %s (hot_standby_feedback)', coalesce(nullif(a.application_name, ''), a.pid::text)),
             NULL, age(a.backend_xmin)::bigint,
             'end the long query on that standby, or set hot_standby_feedback = off there', c_dead_rows
      FROM pg_stat_activity AS a WHERE a.backend_type = 'walsender' AND a.backend_xmin IS NOT NULL
      UNION ALL
      SELECT format('the prepared transaction %L of %s%s', p.gid, p.owner,
               CASE WHEN p.database <> current_database() THEN format(' in database %s', p.database) END),
             p.prepared, age(p.transaction)::bigint,
             format('COMMIT PREPARED %1$L; or ROLLBACK PREPARED %1$L;%2$s', p.gid,
               CASE WHEN p.database <> current_database() THEN format(' in database %s', p.database) END),
             -- Exports and streams wait for the transactions of all databases.
             CASE WHEN p.database = current_database() THEN c_dead_rows
               ELSE 'what has ended since waits for exports and streams' END
      FROM pg_prepared_xacts AS p
      UNION ALL
      SELECT format('the replication slot %s', s.slot_name), NULL, age(s.xmin)::bigint,
             CASE WHEN s.active THEN 'end the long query on its standby'
               ELSE format('SELECT pg_drop_replication_slot(%L);', s.slot_name) END, c_dead_rows
      FROM pg_replication_slots AS s WHERE s.xmin IS NOT NULL
    ) AS h (who, since, xids, remedy, effect)
    WHERE CASE WHEN h.since IS NULL THEN h.xids > p_held_xids ELSE h.since < v_now - p_held_for END
    ORDER BY h.xids DESC LIMIT 5
  LOOP
    v_found := true;
    RETURN NEXT;
  END LOOP;
  IF NOT pg_has_role('pg_read_all_stats', 'USAGE') THEN
    level := 'warn';
    what := format('%s may not see since when the sessions of others hold snapshots', current_user);
    fix := format('GRANT pg_read_all_stats TO %I;', current_user);
    RETURN NEXT;
  ELSIF NOT v_found THEN
    RETURN QUERY SELECT code, 'ok', format('none is older than %s s', extract(epoch FROM p_held_for)::integer),
      NULL::text;
  END IF;
END
$$;
