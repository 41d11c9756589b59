-- Delete channels that have a row only because of a pause that is over: while any channel of a topic has a row, claims
-- read the channels one by one.
-- Called by: prune. Locks: the rows it deletes. Result: how many rows.
CREATE OR REPLACE FUNCTION messages.prune_pauses()
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_before timestamptz := messages.now();
  v_did    bigint;
BEGIN
  -- Even a DELETE of nothing would notify topic_changed.
  IF NOT EXISTS (
    SELECT FROM messages.channel AS c
    WHERE num_nonnulls(c.concurrency, c.min_interval) = 0 AND c.paused_at IS NOT NULL AND c.resume_at <= v_before) THEN
    RETURN 0;
  END IF;
  DELETE FROM messages.channel AS c
  WHERE num_nonnulls(c.concurrency, c.min_interval) = 0 AND c.paused_at IS NOT NULL AND c.resume_at <= v_before;
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_did;
END
$$;
