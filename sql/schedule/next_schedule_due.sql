-- How long until fire_schedules has something to do.
-- Called by: daemons, to set their timer. Locks: nothing. Result: an interval (0 or less = now); NULL = no schedule will ever tick.
CREATE OR REPLACE FUNCTION messages.next_schedule_due()
RETURNS interval
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT min(greatest(s.next_tick, s.retry_at)) - messages.now()
  FROM messages.schedule AS s
  WHERE s.paused_at IS NULL AND s.next_tick IS NOT NULL
$$;
