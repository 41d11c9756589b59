-- Returns the time at which a staged row expires. Its TTL counts from when it becomes available. NULL = it does not.
-- Called by: publish_staged, insert_staged_keys, gather_staged. p_now: when it is published. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.staged_end(
  p_available_at timestamptz, p_delay interval, p_ttl interval, p_expires_at timestamptz, p_now timestamptz
)
RETURNS timestamptz
LANGUAGE sql
STABLE
AS $$
  SELECT CASE
    WHEN p_ttl IS NULL THEN p_expires_at
    ELSE least(greatest(messages.staged_start(p_available_at, p_delay, p_now), p_now) + p_ttl, '9000-01-01 00:00+00')
  END
$$;
