-- Begin to stage rows of a job: COPY them into messages.publish_stage with the number that this returns, then pass the number to
-- publish_staged.
-- Called by: publishers, once for each task that stages, and again when a task is repeated: only the numbers given to publish_staged count.
-- Result: a random number, valid for a day; NULL = the job is already published, there is nothing to stage.
-- Errors: 42501 the job is another user's. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.begin_staging(p_job text)
RETURNS uuid
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_attempt uuid;
BEGIN
  IF (SELECT j.job FROM messages.read_own_job(p_job) AS j) IS NOT NULL THEN
    RETURN NULL;
  END IF;
  INSERT INTO messages.publish_attempt AS a (job) VALUES (p_job) RETURNING a.attempt INTO v_attempt;
  RETURN v_attempt;
END
$$;
