-- Begin to stage rows of a job: COPY them into messages.publish_stage with the number that this gives, then hand it to publish_staged.
-- Called by: publishers, once for each task that stages, and again when the task is repeated: only what publish_staged is given counts.
-- Result: the number, drawn by lot; NULL = the job is published already, there is nothing to stage. It is good for a day.
-- Errors: 42501 the job is another user's. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.begin_stage(p_job text)
RETURNS uuid
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  v_attempt uuid;
BEGIN
  IF (SELECT j.job FROM messages.own_job(p_job) AS j) IS NOT NULL THEN
    RETURN NULL;
  END IF;
  INSERT INTO messages.publish_attempt AS a (job) VALUES (p_job) RETURNING a.attempt INTO v_attempt;
  RETURN v_attempt;
END
$$;
