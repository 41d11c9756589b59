-- Say that a worker is about to sleep and when it will look by itself; from the commit on, publishes that are due earlier ring for it.
-- Called by: workers whose claim found nothing, in a transaction of its own: only what is committed counts.
-- Locks: the worker's own row, which nobody else writes, and what raise_armed locks. The caller need not wait for
-- the flush (synchronous_commit = off): after a crash workers arm again anyway.
CREATE OR REPLACE FUNCTION messages.arm(p_worker text, p_topics text[], p_look_in interval)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  v_until timestamptz := clock_timestamp() + 2 * p_look_in;
BEGIN
  INSERT INTO messages.sleeper AS s (worker, topics, armed_until, next_look_at)
  VALUES (p_worker, p_topics, v_until, clock_timestamp() + p_look_in)
  ON CONFLICT (worker) DO UPDATE
  SET topics = excluded.topics, armed_until = excluded.armed_until, next_look_at = excluded.next_look_at;
  PERFORM messages.raise_armed(v_until);
END
$$;
