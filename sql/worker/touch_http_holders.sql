-- Records a sign of life of the HTTP workers that hold these messages, with their heartbeats.
--
-- Errors: none.
-- Locks: the workers' own rows, without waiting.
-- Repeat: safe; within five seconds it does nothing.
-- Called by: the web server, with heartbeats.
-- Inside: A heartbeat names no worker, and a worker that runs a long message claims nothing.
CREATE OR REPLACE FUNCTION messages.touch_http_holders(p_ids bigint[])
RETURNS void
LANGUAGE sql
SECURITY DEFINER
AS $$
  WITH held AS MATERIALIZED (
    SELECT DISTINCT m.locked_by FROM messages.message AS m WHERE m.id = ANY (p_ids) AND m.claim_id IS NOT NULL
  ), mine AS (
    SELECT w.name FROM messages.worker AS w
    WHERE w.name IN (SELECT h.locked_by FROM held AS h) AND w.kind = 'http' AND NOT w.stopping
      AND w.seen_at < clock_timestamp() - interval '5 s'
    FOR NO KEY UPDATE SKIP LOCKED
  )
  UPDATE messages.worker AS w SET seen_at = clock_timestamp() FROM mine WHERE w.name = mine.name
$$;
