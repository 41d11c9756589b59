-- The row of a published job, if it belongs to the caller. Users share the names of jobs, and nothing else of them.
-- Called by: begin_staging, publish_staged, job_result, job_rejected. Locks: nothing. Result: its row; all NULL = it
-- was not published.
-- Errors: 42501 the job is another user's; 22023 the name is missing or invalid.
CREATE OR REPLACE FUNCTION messages.read_own_job(p_job text)
RETURNS messages.publish_job
LANGUAGE plpgsql
VOLATILE
AS $$
DECLARE
  v_job messages.publish_job;
BEGIN
  IF coalesce(p_job, '') = '' OR length(p_job) > 200 OR NOT messages.is_printable(p_job) THEN
    RAISE EXCEPTION 'job is %', coalesce('"' || left(p_job, 250) || '"', 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 to 200 printable characters';
  END IF;
  SELECT j.* INTO v_job FROM messages.publish_job AS j WHERE j.job = p_job;
  IF v_job.published_by <> session_user THEN
    RAISE EXCEPTION 'job "%" was published by another user', p_job USING ERRCODE = '42501', HINT = 'use another job';
  END IF;
  RETURN v_job;
END
$$;
