-- Returns what the doctor says of a condition: fail if its severity is page, else warn.
-- Called by: examine_conditions, examine_workers. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.condition_level(p_kind text)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT CASE messages.alert_severity(p_kind) WHEN 'page' THEN 'fail' ELSE 'warn' END
$$;
