-- Publishes the message of a schedule now, paused or not. Its ticks do not change; the run has its own row in
-- `messages.schedule_run`, with `run_by`.
--
-- Result: `outcome` is `published`, otherwise an outcome of `messages.schedule_run`; `id` is the message that was
-- published, or the one that already has the key.
-- Errors: 22023 for a schedule that does not exist; the errors of a publish.
-- Locks: the row of the schedule; whatever a publish locks.
-- Repeat: each call publishes a message.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.run_schedule(p_name text)
RETURNS TABLE (id bigint, outcome text)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now      timestamptz;
  v_tick     timestamptz;
  v_schedule messages.schedule;
  v_run      record;
BEGIN
  -- Before the clock is read: a message must not seem older than its transaction, or claims look for it too late.
  PERFORM pg_current_xact_id();
  v_now := messages.now();
  v_tick := v_now;
  SELECT s.* INTO v_schedule FROM messages.schedule AS s WHERE s.name = p_name FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no schedule %', coalesce('"' || p_name || '"', 'NULL')
      USING ERRCODE = '22023', HINT = 'see messages.schedule for those there are';
  END IF;
  -- A row of its own in schedule_run, never that of a tick: these are whole seconds.
  WHILE v_tick = date_trunc('second', v_tick)
     OR EXISTS (SELECT FROM messages.schedule_run AS r WHERE r.schedule = p_name AND r.tick = v_tick) LOOP
    v_tick := v_tick + interval '1 microsecond';
  END LOOP;
  v_schedule.jitter := '0';
  v_run := messages.publish_tick(v_schedule, v_tick, v_now);
  INSERT INTO messages.schedule_run (schedule, tick, outcome, message_id, fired_at, run_by)
  VALUES (p_name, v_tick, v_run.outcome, v_run.id, v_now, messages.actor());
  UPDATE messages.schedule AS s SET last_message_id = v_run.id, last_fired_at = v_now WHERE s.name = p_name;
  PERFORM messages.audit_action(
    'run_schedule', v_schedule.topic, p_name, jsonb_build_object('message_id', v_run.id, 'outcome', v_run.outcome));
  RETURN QUERY SELECT v_run.id, v_run.outcome;
END
$$;
