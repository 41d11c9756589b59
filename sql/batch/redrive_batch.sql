-- Puts the dead messages of a batch back into the queue, as `messages.redrive` does, the oldest first, at most
-- `p_limit`. They count in the batch again, which is not finished until they have ended. What the batch has published
-- it does not publish again; but if all its messages have succeeded then, it publishes for that, unless it has.
--
-- Arguments: `p_after`: the last `archived_id` of the previous page. The others are those of `messages.redrive`.
-- Result: as `messages.redrive`; no row: there are no more.
-- Errors: PGR09 if there is no such batch; 22023 for an invalid limit, rate or delay.
-- Locks: as `messages.redrive`.
-- Repeat: safe: what was redriven is not redriven again.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.redrive_batch(
  p_id bigint, p_limit integer DEFAULT 1000, p_rate double precision DEFAULT NULL, p_delay interval DEFAULT '0',
  p_force boolean DEFAULT false, p_after bigint DEFAULT 0
)
RETURNS TABLE (archived_id bigint, message_id bigint, outcome text)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids      bigint[];
  v_new      bigint[];
  v_outcomes text[];
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'limit of a redrive is %', coalesce(p_limit::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 to 10000, and p_after for the next page';
  END IF;
  IF NOT EXISTS (SELECT FROM messages.batch AS b WHERE b.id = p_id) THEN
    RAISE EXCEPTION 'there is no batch %', coalesce(p_id::text, 'NULL')
      USING ERRCODE = 'PGR09', HINT = 'it was never created, its creation is not committed, or its retention is over';
  END IF;
  SELECT array_agg(b.archived_id), array_agg(b.message_id), array_agg(b.outcome)
  INTO v_ids, v_new, v_outcomes
  FROM messages.redrive_rows(
    ARRAY(
      SELECT a.id FROM messages.message_archive AS a
      WHERE a.batch_id = p_id AND a.result NOT IN ('success', 'cancelled') AND a.id > coalesce(p_after, 0)
        AND (SELECT true FROM messages.redrive_log AS r WHERE r.archived_id = a.id LIMIT 1) IS NULL
      ORDER BY a.id
      LIMIT p_limit),
    NULL, p_rate, p_delay, p_force) AS b;
  PERFORM messages.audit_redrive(
    'redrive_batch', v_ids, v_new, v_outcomes, jsonb_build_object(
      'batch', p_id, 'rate', p_rate, 'delay', nullif(p_delay, '0'), 'force', nullif(p_force, false)));
  RETURN QUERY SELECT b.* FROM unnest(v_ids, v_new, v_outcomes) AS b (archived_id, message_id, outcome);
END
$$;
