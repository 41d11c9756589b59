-- Returns the outcome of a job of the caller; no row if it was not published, or so long ago that it was pruned.
--
-- Errors: 42501: the job belongs to another user. 22023 for an invalid key.
-- Locks: none.
-- Called by: publishers.
CREATE OR REPLACE FUNCTION messages.job_result(p_job text)
RETURNS TABLE (published bigint, ignored bigint, dropped bigint, rejected bigint, published_at timestamptz)
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT j.published, j.ignored, j.dropped, j.rejected, j.published_at FROM messages.read_own_job(p_job) AS j
  WHERE j.job IS NOT NULL
$$;
