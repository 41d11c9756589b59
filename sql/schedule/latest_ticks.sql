-- The latest p_count ticks from p_first (itself a tick) to p_until, in ascending order.
-- Called by: fire_schedule, to make up for what was missed. Locks: nothing. Result: all of them if they are no more
-- than that. Bounded however long the schedule was not looked at: it walks at most p_count ticks at a time, and halves
-- the time range in which it searches for their beginning.
CREATE OR REPLACE FUNCTION messages.latest_ticks(
  p_cron text, p_time_zone text, p_first timestamptz, p_until timestamptz, p_count integer
)
RETURNS timestamptz[]
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_low    timestamptz := p_first;  -- from here on there are more than p_count, or they were not counted
  v_high   timestamptz := p_until;  -- from here on there are fewer
  v_begin  timestamptz := p_first;
  v_middle timestamptz;
  v_tick   timestamptz;
  v_ticks  timestamptz[];
BEGIN
  LOOP
    v_ticks := '{}';
    v_tick := v_begin;
    WHILE v_tick <= p_until AND cardinality(v_ticks) <= p_count LOOP
      v_ticks := v_ticks || v_tick;
      v_tick := messages.next_tick(p_cron, p_time_zone, v_tick);
    END LOOP;
    IF cardinality(v_ticks) = p_count OR (v_begin = p_first AND cardinality(v_ticks) < p_count) THEN
      EXIT;
    ELSIF cardinality(v_ticks) > p_count THEN
      v_low := v_begin;
    ELSE
      v_high := v_middle;
    END IF;
    -- Mostly they come evenly: the first guess is where they would begin then, a little before it.
    v_middle := CASE
      WHEN v_begin = p_first THEN greatest(v_low, p_until - (v_ticks[p_count + 1] - v_begin) * 1.25)
      ELSE v_low + (v_high - v_low) / 2 END;
    v_begin := messages.next_tick(p_cron, p_time_zone, v_middle);
  END LOOP;
  RETURN v_ticks;
END
$$;
