-- Settles messages that succeeded: they are archived as `success`. The topic's `archive_success` sets what the archive
-- keeps of a success: `full`, `no_payload` (payload and body are left out), `none` (no row at all).
--
-- Arguments: `p_outputs`: for each message, the value that its handler returned, kept as `output`.
-- Result: the ids whose lock was lost; nothing was changed for them.
-- Errors: none.
-- Locks: the rows, until the transaction ends; it waits for a transaction that settles, extends or cancels the same
-- rows.
-- Called by: workers.
-- Inside: archive would do the same, and takes an eighth longer: it is one more function, and asks what no success has.
-- It also joins the ids: see below. What a success keeps is asked for each message only where some topic keeps less.
CREATE OR REPLACE FUNCTION messages.complete(p_ids bigint[], p_claim_ids bigint[], p_outputs jsonb[] DEFAULT NULL)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now     timestamptz := messages.now();
  v_settled bigint[];
  v_topics  text[];
  v_keyed   messages.ended_message[];
  v_bits    bigint;
  v_of      bigint[];
  v_parts   bigint[];
BEGIN
  WITH gone AS (
    DELETE FROM messages.message AS m
    WHERE m.id = ANY (p_ids)
      -- No join: a plan that was made while the table was empty would read all messages and compare each with each.
      AND CASE
            WHEN (m.id, m.claim_id) IN (SELECT e.id, e.claim_id FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id))
            THEN m.lock_expires_at > v_now OR NOT messages.has_strict_lock(m.topic)
          END
    RETURNING m.*
  ), kept AS (
    INSERT INTO messages.message_archive (
      id, topic, channel, key, priority, payload, body, headers, state, progress,
      created_at, available_at, expires_at, attempts, runs, max_attempts, timeout, backoff, retention,
      claim_id, locked_at, history,
      origin_id, original_topic, dlq_moved_at, redriven_from, redrives, batch_id, result, output, handled_by)
    SELECT
      g.id, g.topic, g.channel, g.key, g.priority,
      CASE WHEN keep.what = 'full' THEN g.payload END,
      CASE WHEN keep.what = 'full' THEN g.body END,
      g.headers, g.state, g.progress,
      g.created_at, g.available_at, g.expires_at, g.attempts, g.runs, g.max_attempts, g.timeout, g.backoff, g.retention,
      g.claim_id, g.locked_at, g.history,
      g.origin_id, g.original_topic, g.dlq_moved_at, g.redriven_from, g.redrives, g.batch_id, 'success',
      CASE WHEN p_outputs IS NOT NULL THEN p_outputs[array_position(p_ids, g.id)] END::messages.given_json, g.locked_by
    FROM gone AS g
    CROSS JOIN LATERAL (
      SELECT CASE
               WHEN (SELECT EXISTS (SELECT FROM messages.topic AS t WHERE t.archive_success <> 'full'))
               THEN messages.kept_of_success(g.topic)
               ELSE 'full'
             END AS what
      OFFSET 0
    ) AS keep
    WHERE keep.what <> 'none'
  )
  SELECT array_agg(g.id), array_agg(g.topic::text), bit_or(messages.policy_topic_bit(g.topic)),
         array_agg((g.id, g.topic, g.key)::messages.ended_message) FILTER (WHERE g.key IS NOT NULL),
         array_agg(g.batch_id) FILTER (WHERE g.batch_id IS NOT NULL),
         array_agg(g.id) FILTER (WHERE g.batch_id IS NOT NULL)
  INTO v_settled, v_topics, v_bits, v_keyed, v_of, v_parts
  FROM gone AS g;
  -- Asked once the rows are gone: see archive.
  IF messages.may_have_policies(v_bits) THEN
    PERFORM messages.apply_end_policies(v_topics, NULL, v_keyed, 'success');
  END IF;
  IF v_settled IS NOT NULL AND pg_sequence_last_value('messages.awaited_flag') > 1 THEN
    PERFORM messages.announce_ends(v_settled, 'success');
  END IF;
  IF v_of IS NOT NULL THEN
    PERFORM messages.count_batch_ends(v_of, v_parts, 'success');
  END IF;
  IF cardinality(v_settled) >= cardinality(p_ids) THEN
    RETURN '{}'::bigint[];
  END IF;
  RETURN messages.lost_ids(p_ids, p_claim_ids, coalesce(v_settled, '{}'), 'success');
END
$$;
