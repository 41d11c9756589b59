-- A sign of life, with what the worker says of itself (listener, in hand, done).
-- Called by: the heartbeat of daemons. Locks: the worker's own row. Result: false if the registry does not know the worker.
CREATE OR REPLACE FUNCTION messages.worker_seen(p_name text, p_status jsonb, p_stopping boolean DEFAULT false)
RETURNS boolean
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET synchronous_commit = off
AS $$
  WITH seen AS (
    UPDATE messages.worker AS w
    SET seen_at = clock_timestamp(), status = p_status, stopping = p_stopping
    WHERE w.name = p_name
    RETURNING 1
  )
  SELECT EXISTS (SELECT FROM seen)
$$;
