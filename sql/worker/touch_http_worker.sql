-- Records a sign of life of a worker that claims over HTTP: adds it with `kind` `http`, or updates its entry. The
-- registry holds at most 1000 such workers at a time, and at most 100 per token; the token is the part of their names
-- before the `/`. They do not unregister: after five minutes without a sign of life they are deleted.
--
-- Arguments: `p_limit`: how many messages it requests at once.
-- Result: true: the worker was asked to drain and must not claim anything more. Once it has received this answer and 30
-- seconds have passed, a claim under its name counts as a restarted worker.
-- Errors: none.
-- Locks: the worker's own row, without waiting: while another transaction holds it, nothing is written.
-- Called by: the web server, before a claim that gives a worker's name, every few seconds.
CREATE OR REPLACE FUNCTION messages.touch_http_worker(p_name text, p_host text, p_topics text[], p_limit integer)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now    timestamptz := clock_timestamp();
  v_worker messages.worker;
BEGIN
  SELECT w.* INTO v_worker FROM messages.worker AS w
  WHERE w.name = p_name AND w.kind = 'http' FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    INSERT INTO messages.worker AS w (name, host, pid, version, topics, concurrency, kind)
    SELECT p_name, p_host, 0, '', p_topics, p_limit, 'http'
    -- Asked first: to find out by the conflict would wait for anyone who holds the row.
    WHERE NOT EXISTS (SELECT FROM messages.worker AS w WHERE w.name = p_name)
      AND (
        SELECT count(*) < 1000 AND count(*) FILTER (WHERE split_part(w.name, '/', 1) = split_part(p_name, '/', 1)) < 100
        FROM messages.worker AS w WHERE w.kind = 'http')
    ON CONFLICT (name) DO NOTHING;
    RETURN EXISTS (
      SELECT FROM messages.worker AS w WHERE w.name = p_name AND w.kind = 'http' AND w.drain_asked_at IS NOT NULL);
  END IF;
  IF v_worker.drain_asked_at IS NOT NULL AND NOT v_worker.stopping THEN
    UPDATE messages.worker AS w SET stopping = true, seen_at = v_now WHERE w.name = p_name;
    RETURN true;
  ELSIF v_worker.drain_asked_at IS NOT NULL AND v_worker.seen_at > v_now - interval '30 s' THEN
    RETURN true;
  END IF;
  UPDATE messages.worker AS w
  SET host = p_host, topics = p_topics, concurrency = p_limit, seen_at = v_now, stopping = false,
      drain_asked_at = NULL, drain_asked_by = NULL,
      started_at = CASE WHEN v_worker.stopping THEN v_now ELSE w.started_at END
  WHERE w.name = p_name;
  RETURN false;
END
$$;
