-- Advice about an open breaker, for people.
-- Called by: conditions, announce_breaker. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.breaker_advice(p_topic text)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT format(
    'fix what its handler depends on; it closes by itself when probes succeed: `pgrouse topic show %s`', p_topic)
$$;
