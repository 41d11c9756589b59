-- Record a sign of life of a worker, with its status (listener, in flight, done).
-- Called by: the heartbeat of daemons. Locks: the worker's own row, without waiting: while another session holds it (an open transaction
-- around drain_worker), this update is skipped, and the next one is not. A worker that has locks to extend must not be blocked by that.
-- Result: false if the registry does not know the worker.
CREATE OR REPLACE FUNCTION messages.touch_worker(p_name text, p_status jsonb, p_stopping boolean DEFAULT false)
RETURNS boolean
LANGUAGE sql
SECURITY DEFINER
AS $$
  WITH mine AS (
    SELECT w.name FROM messages.worker AS w WHERE w.name = p_name FOR NO KEY UPDATE SKIP LOCKED
  ), seen AS (
    UPDATE messages.worker AS w
    SET seen_at = clock_timestamp(), status = p_status, stopping = p_stopping
    FROM mine
    WHERE w.name = mine.name
    RETURNING 1
  )
  SELECT EXISTS (SELECT FROM seen) OR EXISTS (SELECT FROM messages.worker AS w WHERE w.name = p_name)
$$;
