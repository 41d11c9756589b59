-- Moves copies that wait in a `.dlq` topic back to the topic in which they died. It redrives their originals: both
-- functions use the same log, so a message comes back only once. Each original becomes a new message of its topic,
-- again with its key and `max_attempts` (and its `timeout`, `backoff` and `retention`); its copy ends as `cancelled`.
-- If the archive row is gone, the copy's contents are used, without a key.
--
-- Arguments: `p_rate`, `p_delay`, `p_force`: as for `messages.redrive`.
-- Result: one row per id, with the outcomes of `messages.redrive`, or `not_waiting`: the message is not a copy, or the
-- copy is running or has ended. A copy whose original was redriven before ends too; other copies whose original was not
-- redriven keep waiting.
-- Errors: 22023 for an invalid rate or delay.
-- Locks: the copies, waiting for any transaction that claims them right now; then as for `messages.redrive`.
-- Repeat: safe.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.requeue_dead_letters(
  p_ids bigint[], p_rate double precision DEFAULT NULL, p_delay interval DEFAULT '0', p_force boolean DEFAULT false
)
RETURNS TABLE (copy_id bigint, archived_id bigint, message_id bigint, outcome text)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_copies   bigint[];
  v_origins  bigint[];
  v_ids      bigint[];
  v_new      bigint[];
  v_outcomes text[];
BEGIN
  SELECT array_agg(m.id), array_agg(m.origin_id)
  INTO v_copies, v_origins
  FROM (
    SELECT m.id, m.origin_id
    FROM messages.message AS m
    WHERE m.id = ANY (p_ids) AND m.claim_id IS NULL AND m.dlq_moved_at IS NOT NULL
    ORDER BY m.id
    FOR UPDATE
  ) AS m;

  SELECT array_agg(b.archived_id), array_agg(b.message_id), array_agg(b.outcome)
  INTO v_ids, v_new, v_outcomes
  FROM messages.redrive_rows(v_origins, NULL, p_rate, p_delay, p_force) AS b;
  PERFORM messages.audit_redrive(
    'requeue_dead_letters', v_ids, v_new, v_outcomes, jsonb_build_object('rate', p_rate, 'delay', nullif(p_delay, '0'))
  );

  RETURN QUERY
  -- Sorted among each other, and not joined: without hash joins each would be compared with each.
  SELECT b.id, b.archived_id, b.message_id, b.outcome
  FROM (
    SELECT u.id, u.archived_id, max(u.message_id) OVER w AS message_id, max(u.outcome) OVER w AS outcome
    FROM (
      SELECT NULL::bigint AS id, b.archived_id, b.message_id, b.outcome
      FROM unnest(v_ids, v_new, v_outcomes) AS b (archived_id, message_id, outcome)
      UNION ALL
      SELECT c.id, c.origin_id, NULL, NULL FROM unnest(v_copies, v_origins) AS c (id, origin_id)
    ) AS u
    WINDOW w AS (PARTITION BY u.archived_id)
  ) AS b
  WHERE b.id IS NOT NULL AND b.outcome IS NOT NULL
  UNION ALL
  SELECT i.id, NULL, NULL, 'not_waiting'
  FROM (SELECT DISTINCT i.id FROM unnest(p_ids) AS i (id) WHERE i.id IS NOT NULL) AS i
  WHERE i.id NOT IN (SELECT c.id FROM unnest(v_copies) AS c (id))
  ORDER BY 1;
END
$$;
