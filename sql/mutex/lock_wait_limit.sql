-- Returns how long to wait for a lock that others can hold for long: the session's lock_timeout, or 10 s if that is not
-- set.
-- Called by: wait_mutex, lock_depth, lock_publish_limits, charge_publish_rate. Locks: nothing. Result: in the format of
-- lock_timeout.
CREATE OR REPLACE FUNCTION messages.lock_wait_limit()
RETURNS text
LANGUAGE sql
STABLE
AS $$
  SELECT CASE current_setting('lock_timeout') WHEN '0' THEN '10s' ELSE current_setting('lock_timeout') END
$$;
