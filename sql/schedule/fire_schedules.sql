-- Publishes the messages of the [schedules](#scheduled-messages) that are due now. Schedules that have been due longest
-- come first. It handles at most `p_limit` schedules, and stops after about a thousand messages or 5 s; the next call
-- continues.
--
-- A schedule that fails (its topic is full or refuses the message, its time zone is gone) does not affect others. Its
-- tick remains due; `last_error`, `failures` and `retry_at` say what is wrong and when it is tried again: after 2 s,
-- then with growing delays of up to 5 minutes. Each failure is a WARNING.
--
-- Result: how many messages.
-- Errors: none.
-- Locks: the schedules that are due, until the transaction ends, skipping those that another session is firing;
-- whatever a publish locks. It waits for no lock longer than 2 s.
-- Repeat: safe: a tick is published once.
-- Called by: tick, and daemons at the time that next_schedule_due returns.
CREATE OR REPLACE FUNCTION messages.fire_schedules(p_limit integer DEFAULT 100)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET lock_timeout = '2s'
AS $$
DECLARE
  v_began    timestamptz := clock_timestamp();
  v_now      timestamptz;
  v_schedule messages.schedule;
  v_hint     text;
  v_did      bigint := 0;
BEGIN
  -- A call that finds nothing needs no transaction id.
  IF NOT EXISTS (
    SELECT FROM messages.schedule AS s WHERE s.paused_at IS NULL AND s.next_tick <= (SELECT messages.now())
  ) THEN
    RETURN 0;
  END IF;
  -- Before the clock is read: a message must not seem older than its transaction, or claims look for it too late.
  PERFORM pg_current_xact_id();
  v_now := messages.now();
  FOR v_schedule IN
    SELECT s.*
    FROM messages.schedule AS s
    WHERE s.paused_at IS NULL AND s.next_tick <= v_now AND (s.retry_at IS NULL OR s.retry_at <= v_now)
    ORDER BY s.next_tick
    LIMIT p_limit
    FOR UPDATE SKIP LOCKED
  LOOP
    BEGIN
      v_did := v_did + messages.fire_schedule(v_schedule, v_now);
    EXCEPTION WHEN OTHERS THEN
      GET STACKED DIAGNOSTICS v_hint = PG_EXCEPTION_HINT;
      UPDATE messages.schedule AS s
      SET last_error = left(concat_ws(': ', SQLERRM, nullif(v_hint, '')), 1000), failed_at = v_now,
          failures = s.failures + 1,
          retry_at = v_now + least(interval '5 minutes', interval '1 s' * 2 ^ least(s.failures + 1, 9))
      WHERE s.name = v_schedule.name;
      RAISE WARNING 'schedule % failed: %', v_schedule.name, SQLERRM;
    END;
    EXIT WHEN v_did >= 1000 OR clock_timestamp() > v_began + interval '5 s';
  END LOOP;
  RETURN v_did;
END
$$;
