-- Returns how long it is until `fire_schedules` has something to do.
--
-- Result: 0 or less: it has work now. NULL: no schedule will ever tick.
-- Errors: none.
-- Locks: none.
-- Called by: daemons, to set their timer.
CREATE OR REPLACE FUNCTION messages.next_schedule_due()
RETURNS interval
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT min(greatest(s.next_tick, s.retry_at)) - messages.now()
  FROM messages.schedule AS s
  WHERE s.paused_at IS NULL AND s.next_tick IS NOT NULL
$$;
