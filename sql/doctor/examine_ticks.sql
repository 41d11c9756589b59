-- Checks that the maintenance runs: recent ticks, successful tasks, expired locks that are ended, schedules that fire.
--
-- Result: for each code what is wrong with it, by object, or one row with level `ok`. The codes are `ticks`,
-- `tick_tasks`, `expired_locks`, `schedules`.
-- Errors: none.
-- Locks: none.
-- Cost: the marks, the locked rows, the schedules.
-- Called by: doctor, `pgrouse doctor`.
CREATE OR REPLACE FUNCTION messages.examine_ticks()
RETURNS TABLE (code text, level text, what text, fix text)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_last   timestamptz := (SELECT max(k.ran_at) FROM messages.tick_mark AS k);
  v_count  bigint;
BEGIN
  code := 'ticks';
  level := CASE WHEN v_last > v_now - interval '3 minutes' THEN 'ok' ELSE 'fail' END;
  what := CASE
    WHEN level = 'ok' THEN format('the last one was %s s ago', greatest(0, round(extract(epoch FROM v_now - v_last))))
    WHEN v_last IS NULL THEN 'the maintenance has never run: locks do not expire, schedules do not fire'
    ELSE format(
      'the maintenance has not run for %s s: locks do not expire, schedules do not fire',
      round(extract(epoch FROM v_now - v_last))
    ) END;
  fix := CASE WHEN level <> 'ok'
    THEN 'start a daemon with `pgrouse run`, or `pgrouse cron install`; by hand: SELECT * FROM messages.tick();' END;
  RETURN NEXT;

  RETURN QUERY
  WITH failing AS (
    SELECT k.task, max(k.ran_at) AS succeeded_at
    FROM messages.tick_mark AS k
    GROUP BY k.task
    -- A task of an older version that is no more has a mark, too: the tick forgets nothing.
    HAVING max(k.ran_at) BETWEEN v_last - interval '7 days' AND v_last - interval '5 minutes'
  )
  SELECT 'tick_tasks', 'fail',
         format('%s fails at each tick since %s', f.task, f.succeeded_at::timestamptz(0)),
         format('see the server''s log for "tick: %s failed", or: SELECT * FROM messages.tick();', f.task)
  FROM failing AS f
  UNION ALL
  SELECT 'tick_tasks', 'ok', 'none fails', NULL
  WHERE NOT EXISTS (SELECT FROM failing);

  SELECT count(*) INTO v_count
  FROM (
    SELECT FROM messages.message AS m
    WHERE m.claim_id IS NOT NULL AND m.lock_expires_at < v_now - interval '1 minute'
    LIMIT 1000) AS e;
  code := 'expired_locks';
  level := CASE WHEN v_count > 0 THEN 'fail' ELSE 'ok' END;
  what := CASE WHEN v_count > 0
    THEN format(
      '%s%s messages wait behind locks that expired more than a minute ago', v_count,
      CASE WHEN v_count = 1000 THEN '+' END)
    ELSE 'none waits to be swept' END;
  fix := CASE WHEN v_count > 0 THEN 'see ticks; by hand: SELECT messages.run_maintenance(''expire_locks'');' END;
  RETURN NEXT;

  RETURN QUERY
  WITH stuck AS (
    SELECT s.name, s.next_tick, s.failures, s.last_error
    FROM messages.schedule AS s
    WHERE s.paused_at IS NULL AND (s.failures > 0 OR s.next_tick < v_now - interval '5 minutes')
    ORDER BY s.next_tick LIMIT 10
  )
  SELECT 'schedules', 'fail',
         CASE WHEN s.failures > 0
           THEN format('the schedule %s has failed %s times in a row: %s', s.name, s.failures, left(s.last_error, 200))
              ELSE format('the schedule %s is due since %s', s.name, s.next_tick::timestamptz(0)) END,
         CASE WHEN s.failures > 0 THEN format('pgrouse schedule show %s', s.name)
           ELSE 'see ticks; by hand: SELECT messages.fire_schedules();' END
  FROM stuck AS s
  UNION ALL
  SELECT 'schedules', 'ok', 'each fires', NULL
  WHERE NOT EXISTS (SELECT FROM stuck);
END
$$;
