-- Throw away what the caller staged and will not publish, or has published.
-- Called by: publishers, when a job fails; publish_staged. What another user staged is left alone.
-- Locks: the rows it deletes; or the whole stage until the transaction ends, if nobody else uses it: to empty it takes no time then, whatever
-- its size. Result: how many attempts are gone.
CREATE OR REPLACE FUNCTION messages.clear_stage(p_attempts uuid[])
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
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
  IF v_own IS NOT NULL AND NOT messages.empty_stage() THEN
    DELETE FROM messages.publish_stage AS s WHERE s.attempt = ANY (v_own);
  END IF;
  RETURN coalesce(cardinality(v_own), 0);
END
$$;
