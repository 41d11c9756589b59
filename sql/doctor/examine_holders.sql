-- Finds what fills up or blocks because a session holds it: the notification queue, the WAL, the tables of the queue.
-- It uses the caller's rights.
--
-- Arguments: `p_queue_used`: the used fraction of the notification queue from which the check reports it; the queue
-- takes 8 GB unless configured otherwise.
-- Result: for each code what is wrong with it, by holder, or one row with level `ok`. The codes are `notify_queue`,
-- `replication_slot`, `table_lock`, `row_lock`.
-- Errors: none.
-- Locks: none.
-- Called by: doctor, `pgrouse doctor`.
CREATE OR REPLACE FUNCTION messages.examine_holders(p_queue_used double precision DEFAULT 0.1)
RETURNS TABLE (code text, level text, what text, fix text)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_now   timestamptz := messages.now();
  v_used  double precision := pg_notification_queue_usage();
  v_row   record;
BEGIN
  -- The server does not say who has not read it yet; it is always a session that listens and has a transaction open.
  SELECT a.pid, a.usename, a.application_name, a.xact_start INTO v_row
  FROM pg_stat_activity AS a
  WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() AND a.xact_start < v_now - interval '1 second'
  ORDER BY a.xact_start LIMIT 1;
  code := 'notify_queue';
  level := CASE WHEN v_used >= greatest(0.5, p_queue_used) THEN 'fail' WHEN v_used >= p_queue_used THEN 'warn'
    ELSE 'ok' END;
  what := CASE WHEN level = 'ok' THEN format('%s %% full', round(v_used::numeric * 100, 1))
    ELSE format(
      'the queue of notifications is %s %% full; daemons poll once it is nearly full', round(v_used::numeric * 100, 2))
      || CASE WHEN v_row.pid IS NULL THEN ''
        ELSE format('. The oldest transaction is that of process %s (%s, %s), since %s s',
           v_row.pid, v_row.usename, v_row.application_name,
           round(extract(epoch FROM v_now - v_row.xact_start))) END END;
  fix := CASE WHEN level <> 'ok' THEN
    CASE WHEN v_row.pid IS NULL THEN '' ELSE format('SELECT pg_terminate_backend(%s); and ', v_row.pid) END
      || 'see the server''s log: it names the process that does not read. A listener must have no transaction open' END;
  RETURN NEXT;

  code := 'replication_slot';
  RETURN QUERY
    SELECT code, 'warn',
           format('no client reads the replication slot %s, and the server keeps %s of WAL for it', s.slot_name,
             coalesce(pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)), 'all')),
           format('start its reader, or: SELECT pg_drop_replication_slot(%L);', s.slot_name)
    FROM pg_replication_slots AS s
    WHERE NOT s.active AND NOT s.temporary AND s.restart_lsn IS NOT NULL;
  IF NOT FOUND THEN
    RETURN QUERY SELECT code, 'ok', 'none is unused', NULL::text;
  END IF;

  code := 'table_lock';
  RETURN QUERY
    SELECT code, 'fail',
           format('process %s has waited for %s s to lock messages.%s, behind %s; '
             'all other sessions that need that table wait too', l.pid,
             round(extract(epoch FROM v_now - l.waitstart)), c.relname,
             coalesce(
               (SELECT string_agg(format('process %s', b), ', ') FROM unnest(pg_blocking_pids(l.pid)) AS b),
               'another session')),
           format(
             'end the session that holds it: SELECT pg_terminate_backend(b) FROM unnest(pg_blocking_pids(%s)) AS b;',
             l.pid)
    FROM pg_locks AS l
    JOIN pg_class AS c ON c.oid = l.relation AND c.relnamespace = 'messages'::regnamespace
    WHERE NOT l.granted AND l.locktype = 'relation' AND l.waitstart < v_now - interval '5 seconds'
      AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
    ORDER BY l.waitstart LIMIT 5;
  IF NOT FOUND THEN
    RETURN QUERY SELECT code, 'ok', 'no session waits for one', NULL::text;
  END IF;

  code := 'row_lock';
  RETURN QUERY
    SELECT code, CASE WHEN h.since < v_now - interval '1 minute' THEN 'fail' ELSE 'warn' END,
           format('%s has locked %s, for %s s', h.who, h.what, round(extract(epoch FROM v_now - h.since))), h.fix
    FROM messages.lock_holders() AS h
    WHERE h.since < v_now - interval '10 seconds'
    ORDER BY h.since, h.what LIMIT 5;
  IF NOT FOUND THEN
    RETURN QUERY SELECT code, 'ok', 'no session holds for long what others need', NULL::text;
  END IF;
END
$$;
