-- Runs all functions of the [maintenance](#maintenance), one after the other.
--
-- `messages.tick_mark` shows when each task last succeeded, and for which caller: a pg_cron that stopped silently is
-- seen by the age of its marks. A tick by hand is recorded in `messages.audit` with what each task did, if it ran;
-- ticks by other callers are never recorded.
--
-- Arguments: `p_caller`: `cron`, `daemon`, `web` or `hand`. `p_limit`: the maximum number of locks that expire in one
-- call. `p_unless_within`: do nothing if this caller's last tick is more recent than this; daemons and web servers
-- count as one caller.
-- Result: what each task did; -1 = the task failed and changed nothing, the reason is in a WARNING, and the next tick
-- tries again. No rows = another tick is running, or has just run.
-- Errors: 22023 for another caller.
-- Locks: a row of `messages.mutex`, so that two ticks never run at once; it never waits for that row. It sets
-- `lock_timeout` to 2 s for the functions that it calls.
-- Called by: pg_cron each minute ('cron'), each daemon ('daemon') and each web server ('web') every few seconds,
-- `pgrouse maintenance run` ('hand').
CREATE OR REPLACE FUNCTION messages.tick(
  p_caller text DEFAULT 'hand', p_limit integer DEFAULT 1000, p_unless_within interval DEFAULT '0'
)
RETURNS TABLE (task text, count bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET lock_timeout = '2s'
AS $$
DECLARE
  v_all jsonb    := jsonb_build_object();
  v_new bigint[];
BEGIN
  IF p_caller IS NULL OR p_caller NOT IN ('cron', 'daemon', 'web', 'hand') THEN
    RAISE EXCEPTION 'caller of tick is %', coalesce('"' || p_caller || '"', 'NULL')
      USING ERRCODE = '22023', HINT = 'use cron, daemon, web or hand';
  END IF;
  v_new := messages.new_blocked(p_limit);
  IF NOT messages.lock_mutex('tick') THEN
    RETURN;
  END IF;
  IF EXISTS (
    SELECT FROM messages.tick_mark AS k
    WHERE k.task = 'prune' AND k.ran_at > clock_timestamp() - p_unless_within
      AND (k.caller = p_caller OR k.caller IN ('daemon', 'web') AND p_caller IN ('daemon', 'web'))) THEN
    RETURN;
  END IF;
  FOREACH task IN ARRAY ARRAY[
    'propagate_missed_ends', 'expire_locks', 'expire_messages', 'renotify_stale', 'raise_low_water',
    'maintain_partitions', 'purge', 'recount_depth', 'update_breakers', 'fire_schedules', 'update_conditions', 'prune',
    -- This comes last: settles wait at their commit for the counts that it changes.
    'apply_missed_batch_changes'
  ] LOOP
    BEGIN
      count := CASE task
        WHEN 'expire_locks'        THEN messages.expire_locks(p_limit)
        WHEN 'expire_messages'          THEN messages.expire_messages(p_limit)
        WHEN 'propagate_missed_ends'         THEN messages.propagate_missed_ends(p_limit, v_new)
        WHEN 'apply_missed_batch_changes' THEN messages.apply_missed_batch_changes(p_limit)
        WHEN 'fire_schedules'      THEN messages.fire_schedules()
        WHEN 'renotify_stale'      THEN messages.renotify_stale()
        WHEN 'raise_low_water'     THEN messages.raise_low_water()
        WHEN 'maintain_partitions' THEN messages.maintain_partitions()
        WHEN 'purge'               THEN messages.purge()
        WHEN 'recount_depth'       THEN messages.recount_depth()
        WHEN 'update_breakers'           THEN messages.update_breakers()
        WHEN 'update_conditions'               THEN messages.update_conditions()
        WHEN 'prune'               THEN messages.prune()
      END;
      INSERT INTO messages.tick_mark AS k (task, caller, ran_at, count)
      VALUES (tick.task, p_caller, clock_timestamp(), tick.count)
      ON CONFLICT ON CONSTRAINT tick_mark_pkey DO UPDATE SET ran_at = excluded.ran_at, count = excluded.count;
    EXCEPTION WHEN OTHERS THEN
      RAISE WARNING 'tick: % failed: %', task, SQLERRM;
      count := -1;
    END;
    v_all := v_all || jsonb_build_object(task, count);
    RETURN NEXT;
  END LOOP;
  IF p_caller = 'hand' THEN
    PERFORM messages.audit_action('tick', NULL, NULL, jsonb_build_object('count', v_all));
  END IF;
END
$$;
