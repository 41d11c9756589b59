-- Returns the severity of a condition: warn (it has a cost, or works as intended and stops a topic) or fail (work is
-- not done).
-- Called by: open_conditions, examine_conditions: the dashboard and the doctor say the same. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.condition_level(p_kind text)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT CASE WHEN p_kind IN ('no_worker', 'alerts_undelivered') THEN 'fail' ELSE 'warn' END
$$;
