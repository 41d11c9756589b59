-- Begins staging rows of a job.
--
-- Result: the number under which to stage rows, valid for a day. NULL: the job is already published.
-- Errors: 22023 for an invalid key: a key is 1 to 200 printable characters. 42501: another user published the job.
-- Locks: none.
-- Repeat: safe: each call returns another number, and rows staged under a number that is never published are deleted
-- after a day. Rows are staged only under numbers that the same user got.
-- Called by: publishers, once for each task that stages, and again when a task is repeated: only the numbers given to
-- publish_staged count.
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
