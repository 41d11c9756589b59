-- Deletes staged rows that will not be published. Rows that another user staged are not touched.
--
-- Result: how many of the numbers were known.
-- Errors: none.
-- Locks: the rows it deletes; or the whole stage until the transaction ends, if no other session uses it: a TRUNCATE
-- takes no time, whatever the size.
-- Repeat: safe.
-- Called by: publishers, when a job fails; publish_staged.
CREATE OR REPLACE FUNCTION messages.delete_staged(p_attempts uuid[])
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_own uuid[];
BEGIN
  WITH gone AS (
    DELETE FROM messages.publish_attempt AS a
    WHERE a.attempt = ANY (p_attempts) AND a.staged_by = session_user
    RETURNING a.attempt
  )
  SELECT array_agg(g.attempt) INTO v_own FROM gone AS g;
  IF v_own IS NOT NULL AND NOT messages.truncate_stage() THEN
    DELETE FROM messages.publish_stage AS s WHERE s.attempt = ANY (v_own);
  END IF;
  RETURN coalesce(cardinality(v_own), 0);
END
$$;
