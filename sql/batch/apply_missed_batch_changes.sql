-- Counts what transactions that changed batches left to the tick: above READ COMMITTED, or because another session held
-- a batch at their commit. Publishes what batches have to publish and their topics refused so far.
--
-- Result: how many changes it counted, and how many batches it published for.
-- Errors: none.
-- Locks: as a settle of messages of these batches; changes that others hold are skipped.
-- Called by: tick.
CREATE OR REPLACE FUNCTION messages.apply_missed_batch_changes(p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids  bigint[] := ARRAY(
    SELECT c.id FROM messages.batch_change AS c ORDER BY c.id LIMIT p_limit FOR UPDATE SKIP LOCKED);
  v_due  bigint[];
  v_each bigint;
BEGIN
  IF v_ids <> '{}' THEN
    PERFORM messages.apply_batch_changes(v_ids);
  END IF;
  v_due := ARRAY(
    SELECT DISTINCT d.batch_id
    FROM (
      SELECT c.batch_id FROM messages.batch_callback AS c
      WHERE c.message_id IS NULL AND c.due_at IS NOT NULL ORDER BY c.due_at LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED
    ) AS d
    ORDER BY d.batch_id);
  FOREACH v_each IN ARRAY v_due LOOP
    PERFORM messages.publish_batch_callbacks(v_each);
  END LOOP;
  RETURN cardinality(v_ids) + cardinality(v_due);
END
$$;
