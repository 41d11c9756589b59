-- How long a wait that others can draw out may take: as the session's lock_timeout says, 10 s where it says nothing.
-- Called by: wait_mutex, lock_depth, lock_limits, charge_publish. Locks: nothing. Result: as lock_timeout takes it.
CREATE OR REPLACE FUNCTION messages.lock_wait()
RETURNS text
LANGUAGE sql
STABLE
AS $$
  SELECT CASE current_setting('lock_timeout') WHEN '0' THEN '10s' ELSE current_setting('lock_timeout') END
$$;
