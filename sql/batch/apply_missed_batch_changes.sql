-- Counts what transactions that changed batches left to the tick: above READ COMMITTED, or because another session held
-- a batch at their commit. Finishes batches that were closed above READ COMMITTED. Publishes what batches have to
-- publish and their topics refused so far. A batch that a session holds is left to the next tick, as is what is not
-- done after two seconds.
--
-- Result: how many changes it counted, and how many batches it published for.
-- Errors: none.
-- Locks: as a settle of messages of these batches, each waited for 200 ms at the most; changes that others hold are
-- skipped.
-- Called by: tick.
-- Inside: In any order, so that those that are held, or that their topics refuse, do not keep others waiting.
CREATE OR REPLACE FUNCTION messages.apply_missed_batch_changes(p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET lock_timeout = '200ms'
AS $$
DECLARE
  v_end  timestamptz := clock_timestamp() + interval '2 s';
  v_did  bigint      := 0;
  v_each bigint;
BEGIN
  FOR v_each IN
    -- One look at the index for each batch, however many changes it has.
    WITH RECURSIVE changed AS (
      SELECT min(c.batch_id) AS id FROM messages.batch_change AS c
      UNION ALL
      SELECT (SELECT min(c.batch_id) FROM messages.batch_change AS c WHERE c.batch_id > b.id) FROM changed AS b
      WHERE b.id IS NOT NULL
    ), due AS (
      SELECT c.batch_id AS id FROM messages.batch_callback AS c
      WHERE c.message_id IS NULL AND c.due_at IS NOT NULL ORDER BY c.due_at LIMIT 100
    )
    SELECT u.id FROM (SELECT b.id FROM changed AS b UNION SELECT d.id FROM due AS d) AS u
    WHERE u.id IS NOT NULL
    ORDER BY random()
  LOOP
    v_did := v_did + messages.apply_missed_changes_of(v_each, p_limit - v_did);
    EXIT WHEN v_did >= p_limit OR clock_timestamp() > v_end;
  END LOOP;
  RETURN v_did;
END
$$;

-- Do the same for one batch.
-- Called by: apply_missed_batch_changes. Locks: as there. Result: as there; 0 if another session holds the batch.
CREATE OR REPLACE FUNCTION messages.apply_missed_changes_of(p_batch bigint, p_limit bigint)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_ids    bigint[];
  v_is_due boolean := EXISTS (
    SELECT FROM messages.batch_callback AS c
    WHERE c.batch_id = p_batch AND c.message_id IS NULL AND c.due_at IS NOT NULL);
BEGIN
  v_ids := ARRAY(
    SELECT c.id FROM messages.batch_change AS c WHERE c.batch_id = p_batch LIMIT p_limit FOR UPDATE SKIP LOCKED);
  PERFORM messages.close_batch_shards(b.id) FROM messages.batch AS b
  WHERE b.id = p_batch AND b.closed_at IS NOT NULL
    AND (SELECT true FROM messages.batch_shard AS s WHERE s.batch_id = b.id AND NOT s.is_closed LIMIT 1);
  IF v_ids <> '{}' THEN
    PERFORM messages.apply_batch_changes(v_ids);
  END IF;
  IF v_is_due THEN
    PERFORM messages.publish_batch_callbacks(p_batch);
  END IF;
  RETURN cardinality(v_ids) + v_is_due::integer;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
  RETURN 0;
END
$$;
