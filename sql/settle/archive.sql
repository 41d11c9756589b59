-- End messages: move them from messages.message to messages.message_archive in one statement. Every message ends here
-- or in complete.
-- Called by: reject, fail, retry, and whatever else ends messages (cancel, skip, expire_messages); complete has a
-- shorter statement of its own. Not granted to any role. A row moves only while its claim_id is still the given one:
-- that is the fence. NULL moves nothing, unless p_unlocked is true: then NULL means "while it is not locked" (cancel,
-- skip and archive_unclaimable, which hold the row); p_claim_ids NULL means this for all ids. With strict_lock an
-- expired lock fences too, except for the result lock_expired. Each message that ends badly is a WARNING in the
-- server's log, which names id, topic and result, never the payload.
-- Locks: the rows in the order of their ids (as cancel does: no deadlock), until the transaction ends. Result: the ids
-- that moved.
CREATE OR REPLACE FUNCTION messages.archive(
  p_ids bigint[], p_claim_ids bigint[], p_result text, p_errors text[], p_outputs jsonb[], p_by text,
  p_unlocked boolean DEFAULT false
)
RETURNS bigint[]
LANGUAGE plpgsql
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_moved  bigint[];
  v_keyed  messages.ended_message[];
  v_worked text[];
  v_idle   text[];
  v_dead   messages.ended_message[];
  v_bits   bigint;
  v_of     bigint[];
  v_parts  bigint[];
  v_each   messages.ended_message;
BEGIN
  WITH gone AS (
    DELETE FROM messages.message AS m
    USING (
      SELECT e.* FROM unnest(p_ids, p_claim_ids, p_errors, p_outputs) AS e (id, claim_id, error, output) ORDER BY e.id
    ) AS e
    WHERE m.id = ANY (ARRAY[e.id])
      AND CASE
            WHEN m.claim_id = e.claim_id THEN
              p_unlocked OR m.lock_expires_at > v_now OR p_result = 'lock_expired'
              OR NOT messages.has_strict_lock(m.topic)
            ELSE p_unlocked AND m.claim_id IS NULL AND e.claim_id IS NULL
          END
    RETURNING m.*, e.error, e.output
  ), kept AS (
    INSERT INTO messages.message_archive (
      id, topic, channel, key, priority, payload, body, headers, state, progress,
      created_at, available_at, expires_at, attempts, runs, max_attempts, timeout, backoff, retention,
      claim_id, locked_at, history,
      origin_id, original_topic, dlq_moved_at, redriven_from, redrives, batch_id, result,
      error, error_fingerprint, output, handled_by)
    SELECT
      g.id, g.topic, g.channel, g.key, g.priority,
      CASE WHEN keep.what = 'full' THEN g.payload END,
      CASE WHEN keep.what = 'full' THEN g.body END,
      g.headers, g.state, g.progress,
      g.created_at, g.available_at, g.expires_at, g.attempts, g.runs, g.max_attempts,
      g.timeout, g.backoff, g.retention, g.claim_id, g.locked_at, g.history,
      g.origin_id, g.original_topic, g.dlq_moved_at, g.redriven_from, g.redrives, g.batch_id, p_result,
      -- At most 8192 bytes: a character has at most four.
      CASE WHEN octet_length(g.error) <= 8192 THEN g.error ELSE messages.cut_error(g.error, 2048) END,
      CASE WHEN p_result NOT IN ('success', 'cancelled') THEN messages.error_fingerprint(g.error) END,
      g.output::messages.given_json, coalesce(p_by, g.locked_by)
    FROM gone AS g
    CROSS JOIN LATERAL (
      -- Looked up for each message only where some topic keeps less: the first question is asked once. OFFSET 0: so is
      -- the answer for a row.
      SELECT CASE
               WHEN p_result = 'success'
                 AND (SELECT EXISTS (SELECT FROM messages.topic AS t WHERE t.archive_success <> 'full'))
               THEN messages.kept_of_success(g.topic)
               ELSE 'full'
             END AS what
      OFFSET 0
    ) AS keep
    WHERE keep.what <> 'none'
  )
  SELECT array_agg(g.id),
         array_agg(g.topic::text) FILTER (WHERE g.claim_id IS NOT NULL),
         array_agg(g.topic::text) FILTER (WHERE g.claim_id IS NULL),
         array_agg((g.id, g.topic, g.key)::messages.ended_message) FILTER (WHERE g.key IS NOT NULL),
         array_agg((g.id, g.topic, NULL)::messages.ended_message)
           FILTER (WHERE p_result NOT IN ('success', 'cancelled')),
         bit_or(messages.policy_topic_bit(g.topic)),
         array_agg(g.batch_id) FILTER (WHERE g.batch_id IS NOT NULL),
         array_agg(g.id) FILTER (WHERE g.batch_id IS NOT NULL)
  INTO v_moved, v_worked, v_idle, v_keyed, v_dead, v_bits, v_of, v_parts
  FROM gone AS g;
  IF v_dead IS NOT NULL THEN
    PERFORM messages.dead_message(ARRAY(SELECT d.id FROM unnest(v_dead) AS d));
    FOREACH v_each IN ARRAY v_dead LOOP
      RAISE WARNING 'dead message % of topic %: %', v_each.id, v_each.topic, p_result;
    END LOOP;
  END IF;
  -- Asked once the rows are gone, not before: a policy that was committed until then is not missed. So it is with
  -- waiters and edges.
  IF messages.may_have_policies(v_bits) THEN
    PERFORM messages.apply_end_policies(v_worked, v_idle, v_keyed, p_result);
  END IF;
  IF v_moved IS NOT NULL AND pg_sequence_last_value('messages.awaited_flag') > 1 THEN
    PERFORM messages.announce_ends(v_moved, p_result);
  END IF;
  IF v_of IS NOT NULL THEN
    PERFORM messages.count_batch_ends(v_of, v_parts, p_result);
  END IF;
  RETURN coalesce(v_moved, '{}');
END
$$;
