-- A time from a sink's rules, which give it in seconds.
-- Called by: group_new_alerts, close_incidents, create_delivery. Locks: nothing. Result: NULL if the rules do not name
-- it.
CREATE OR REPLACE FUNCTION messages.rule_interval(p_rules jsonb, p_name text)
RETURNS interval
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
AS $$
  SELECT make_interval(secs => (p_rules ->> p_name)::double precision)
$$;
