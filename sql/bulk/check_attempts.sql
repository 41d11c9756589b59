-- Check that rows are staged only under numbers that the caller got from begin_staging: other rows could not be
-- published.
-- Called by: the trigger below, once for each COPY or INSERT. Locks: nothing: if the number is deleted at this moment,
-- prune_jobs finds the rows. Errors: 42501.
CREATE OR REPLACE FUNCTION messages.check_attempts()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_unknown uuid;
BEGIN
  SELECT d.attempt
  INTO v_unknown
  FROM (SELECT DISTINCT f.attempt FROM fresh AS f) AS d
  WHERE NOT EXISTS (
    SELECT FROM messages.publish_attempt AS a WHERE a.attempt = d.attempt AND a.staged_by = session_user)
  LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'attempt % is not registered for %, or more than a day old: nothing was staged', v_unknown,
      session_user
      USING ERRCODE = '42501', HINT = 'stage under the number that messages.begin_staging returns to you';
  END IF;
  RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER check_attempts
AFTER INSERT ON messages.publish_stage
REFERENCING NEW TABLE AS fresh
FOR EACH STATEMENT
EXECUTE FUNCTION messages.check_attempts();
