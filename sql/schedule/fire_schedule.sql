-- Publish what one schedule owes: the tick that is due, or, of several, those that its policy for missed ticks asks
-- for. Of a topic that is paused it publishes nothing if while_paused is skip: each of those ticks is left out.
-- Called by: fire_schedules, which holds the schedule's row locked. Locks: the rows it inserts. Result: how many
-- messages. The message, its row in schedule_run and the next tick are one transaction. A tick that already has a row
-- publishes nothing.
-- Errors: those of publishing the first message; then nothing changes, and the tick is still owed. If a later message
-- fails, its tick becomes the next tick.
CREATE OR REPLACE FUNCTION messages.fire_schedule(p_schedule messages.schedule, p_now timestamptz)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
  v_next    timestamptz := messages.next_tick(p_schedule.cron, p_schedule.time_zone, p_schedule.next_tick);
  v_ticks   timestamptz[] := ARRAY[p_schedule.next_tick];
  v_tick    timestamptz;
  v_missed  timestamptz;
  v_paused  boolean := p_schedule.while_paused = 'skip'
    AND (SELECT t.paused FROM messages.topic_state(ARRAY[p_schedule.topic]) AS t);
  v_omitted text;
  v_run     record;
  v_id      bigint;
  v_fired   timestamptz;
  v_did     integer := 0;
BEGIN
  IF v_next <= p_now THEN
    v_ticks := messages.latest_ticks(
      p_schedule.cron, p_schedule.time_zone, p_schedule.next_tick, p_now,
      CASE p_schedule.missed WHEN 'all' THEN p_schedule.missed_limit ELSE 1 END);
    v_next := messages.next_tick(p_schedule.cron, p_schedule.time_zone, v_ticks[cardinality(v_ticks)]);
  END IF;
  v_missed := nullif(p_schedule.next_tick, v_ticks[1]);

  FOREACH v_tick IN ARRAY v_ticks LOOP
    CONTINUE WHEN EXISTS (
      SELECT FROM messages.schedule_run AS r WHERE r.schedule = p_schedule.name AND r.tick = v_tick);
    v_omitted := CASE
      WHEN v_paused THEN 'paused'
      -- A tick that is up to a minute late is not missed yet: pg_cron alone looks once a minute.
      WHEN p_schedule.missed = 'skip' AND v_tick <= p_now - interval '2 minutes' THEN 'missed' END;
    IF v_omitted IS NULL THEN
      BEGIN
        v_run := messages.publish_tick(p_schedule, v_tick, p_now);
      EXCEPTION WHEN OTHERS THEN
        -- The messages that were published before stay: a topic may have room for some, and never for all at once.
        IF v_did = 0 THEN
          RAISE;
        END IF;
        v_next := v_tick;
        EXIT;
      END;
      v_did := v_did + (v_run.outcome = 'published')::integer;
      v_fired := v_tick;
      v_id := v_run.id;
    ELSE
      SELECT NULL::bigint AS id, v_omitted AS outcome INTO v_run;
    END IF;
    INSERT INTO messages.schedule_run (schedule, tick, outcome, message_id, missed_from, fired_at)
    VALUES (p_schedule.name, v_tick, v_run.outcome, v_run.id, CASE WHEN v_tick = v_ticks[1] THEN v_missed END, p_now);
  END LOOP;

  UPDATE messages.schedule AS s
  SET next_tick = v_next,
      last_tick = coalesce(v_fired, s.last_tick),
      last_message_id = CASE WHEN v_fired IS NULL THEN s.last_message_id ELSE v_id END,
      last_fired_at = CASE WHEN v_fired IS NULL THEN s.last_fired_at ELSE p_now END,
      last_error = NULL, failed_at = NULL, failures = 0, retry_at = NULL
  WHERE s.name = p_schedule.name;
  -- The last thousand runs stay.
  DELETE FROM messages.schedule_run AS r
  WHERE r.schedule = p_schedule.name
    AND r.tick < (
      SELECT k.tick FROM messages.schedule_run AS k
      WHERE k.schedule = p_schedule.name ORDER BY k.tick DESC OFFSET 999 LIMIT 1);
  RETURN v_did;
END
$$;
