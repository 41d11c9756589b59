-- List the rows of one of the caller's jobs that were not published, page by page.
-- Called by: publishers. Locks: nothing. p_after: the nth of the last row of the page before.
-- Result: nth numbers them; why each was not published; given: its columns as they were given, JSON as text and bytes as base64.
-- Errors: 42501 the job is another user's.
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
