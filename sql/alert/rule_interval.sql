-- A time of a sink's rules, which they give in seconds.
-- Called by: gather_alerts, close_incidents, write_delivery. Locks: nothing. Result: NULL if the rules do not name it.
CREATE OR REPLACE FUNCTION messages.seconds_of(p_rules jsonb, p_name text)
RETURNS interval
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
AS $$
  SELECT make_interval(secs => (p_rules ->> p_name)::double precision)
$$;
