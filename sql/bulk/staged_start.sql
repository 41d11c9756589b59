-- Returns the time at which a staged row becomes available.
-- Called by: publish_staged, insert_staged_keys, gather_staged, staged_end. p_now: when it is published. Locks:
-- nothing.
CREATE OR REPLACE FUNCTION messages.staged_start(p_available_at timestamptz, p_delay interval, p_now timestamptz)
RETURNS timestamptz
LANGUAGE sql
STABLE
AS $$
  SELECT coalesce(p_available_at, p_now + p_delay, p_now)
$$;
