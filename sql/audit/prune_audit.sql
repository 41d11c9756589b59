-- Delete audit rows that are older than a year.
-- Called by: purge. Bounded: it checks the p_limit oldest. Locks: the rows it deletes. Result: how many.
CREATE OR REPLACE FUNCTION messages.prune_audit(p_limit integer DEFAULT 1000, p_keep interval DEFAULT '1 year')
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_before timestamptz := messages.now() - p_keep;
  v_did    bigint;
BEGIN
  DELETE FROM messages.audit AS a
  WHERE a.id IN (SELECT o.id FROM messages.audit AS o ORDER BY o.id LIMIT p_limit) AND a.at < v_before;
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_did;
END
$$;
