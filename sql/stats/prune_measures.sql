-- Delete measures that are older than 7 days.
-- Called by: purge. Bounded: the p_limit oldest rows of topics, and of workers. Locks: the rows it deletes. Result: how
-- many.
CREATE OR REPLACE FUNCTION messages.prune_measures(p_limit integer DEFAULT 10000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_before  timestamptz := messages.now() - interval '7 days';
  v_topics  bigint;
  v_workers bigint;
BEGIN
  DELETE FROM messages.measure AS m
  WHERE m.ctid = ANY (ARRAY(
    SELECT o.ctid FROM messages.measure AS o WHERE o.minute < v_before ORDER BY o.minute LIMIT p_limit
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_topics = ROW_COUNT;
  DELETE FROM messages.worker_measure AS m
  WHERE m.ctid = ANY (ARRAY(
    SELECT o.ctid FROM messages.worker_measure AS o WHERE o.minute < v_before ORDER BY o.minute LIMIT p_limit
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_workers = ROW_COUNT;
  RETURN v_topics + v_workers;
END
$$;
