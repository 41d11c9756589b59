-- The result of one of the caller's jobs.
-- Called by: publishers. Locks: nothing. Result: as publish_staged's; no row: it was not published, or so long ago that it was pruned.
-- Errors: 42501 the job is another user's.
CREATE OR REPLACE FUNCTION messages.job_result(p_job text)
RETURNS TABLE (published bigint, ignored bigint, dropped bigint, rejected bigint, published_at timestamptz)
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT j.published, j.ignored, j.dropped, j.rejected, j.published_at FROM messages.read_own_job(p_job) AS j WHERE j.job IS NOT NULL
$$;
