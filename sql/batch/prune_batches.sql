-- Delete old batches: those that were finished, or that were never closed and in which nothing has happened, for as
-- long as the archive keeps messages by default and for 30 days. Messages keep the number of a batch that is gone.
-- Lower the flag messages.batch_flag once there is none.
-- Called by: prune. Bounded: p_limit batches. Locks: the rows that it deletes, skipping what others hold; the table of
-- batches in SHARE mode, only if free at once: one that is being created goes first. It is released at once by rolling
-- back a savepoint, which a setval survives. Result: how many were deleted.
CREATE OR REPLACE FUNCTION messages.prune_batches(p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_before timestamptz := messages.now() - greatest(
    (SELECT d.retention FROM messages.topic AS d WHERE d.topic = '*'), '30 days');
  v_ids    bigint[];
BEGIN
  IF pg_sequence_last_value('messages.batch_flag') = 1 THEN
    -- Logical replication leaves sequences behind.
    PERFORM setval('messages.batch_flag', 2) WHERE EXISTS (SELECT FROM messages.batch);
    RETURN 0;
  END IF;
  v_ids := ARRAY(
    SELECT b.id FROM messages.batch AS b
    WHERE b.finished_at < v_before OR (
      b.finished_at IS NULL AND b.created_at < v_before
      AND NOT EXISTS (
        SELECT FROM messages.batch_shard AS s
        WHERE s.batch_id = b.id AND (s.live <> 0 OR s.last_ended_at >= v_before)))
    LIMIT p_limit
    FOR UPDATE SKIP LOCKED);
  DELETE FROM messages.batch_callback AS c WHERE c.batch_id = ANY (v_ids);
  DELETE FROM messages.batch_shard AS s WHERE s.batch_id = ANY (v_ids);
  DELETE FROM messages.batch AS b WHERE b.id = ANY (v_ids);
  BEGIN
    LOCK TABLE messages.batch IN SHARE MODE NOWAIT;
    -- A statement of its own: the look must be younger than the lock, as it is not above READ COMMITTED.
    PERFORM setval('messages.batch_flag', 1)
    WHERE NOT EXISTS (SELECT FROM messages.batch) AND current_setting('transaction_isolation') = 'read committed';
    RAISE EXCEPTION 'done' USING ERRCODE = 'PGR00';
  EXCEPTION WHEN lock_not_available OR SQLSTATE 'PGR00' THEN
    NULL;
  END;
  RETURN cardinality(v_ids);
END
$$;
