-- Records a sign of life of a worker, with the status that it reports, an object. Entries without a sign of life for an
-- hour are deleted, unless a transaction holds them.
--
-- Result: false if the registry does not know the worker: call `messages.register_worker`.
-- Errors: 23514 for a status that is no object.
-- Locks: the worker's own row, without waiting: while another transaction holds it, for example an open transaction
-- around `messages.drain_worker`, the sign of life is not written, the result is true, and the next one counts again. A
-- worker that must be sure that its status was written reads it back.
-- Called by: the heartbeat of daemons.
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
