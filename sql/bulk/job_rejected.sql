-- Returns the rows of a job of the caller that were not published, page by page: `p_after` is the last `nth` of the
-- previous page. `given` contains the columns as they were given, JSON as text and bytes as base64.
--
-- Errors: 42501: the job belongs to another user. 22023 for an invalid key.
-- Locks: none.
-- Called by: publishers.
CREATE OR REPLACE FUNCTION messages.job_rejected(p_job text, p_after bigint DEFAULT 0, p_limit integer DEFAULT 1000)
RETURNS TABLE (nth bigint, reason text, given jsonb)
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT r.nth, r.reason, r.given
  FROM messages.read_own_job(p_job) AS j
  JOIN messages.publish_rejected AS r ON r.job = j.job
  WHERE r.nth > p_after
  ORDER BY r.nth
  LIMIT p_limit
$$;
