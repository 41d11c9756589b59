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
  v_each   messages.ended_message;
BEGIN
  WITH gone AS (
    DELETE FROM messages.message AS m
    USING (
      SELECT e.* FROM unnest(p_ids, p_claim_ids, p_errors, p_outputs) AS e (id, claim_id, error, output) ORDER BY e.id
    ) AS e
    WHERE m.id = e.id
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
      created_at, available_at, expires_at, attempts, runs, max_attempts, claim_id, locked_at, history,
      origin_id, original_topic, dlq_moved_at, redriven_from, redrives, result,
      error, error_fingerprint, output, handled_by)
    SELECT
      g.id, g.topic, g.channel, g.key, g.priority,
      CASE WHEN keep.what = 'full' THEN g.payload END,
      CASE WHEN keep.what = 'full' THEN g.body END,
      g.headers, g.state, g.progress,
      g.created_at, g.available_at, g.expires_at, g.attempts, g.runs, g.max_attempts,
      g.claim_id, g.locked_at, g.history,
      g.origin_id, g.original_topic, g.dlq_moved_at, g.redriven_from, g.redrives, p_result,
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
         bit_or(messages.policy_topic_bit(g.topic))
  INTO v_moved, v_worked, v_idle, v_keyed, v_dead, v_bits
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
  RETURN coalesce(v_moved, '{}');
END
$$;

-- Apply the policies of topics to messages that ended, and count their attempts for the breakers.
-- Called by: archive and complete, in their transaction, only if a topic of them may use such a policy. p_worked,
-- p_idle: the topic of each message that a worker processed, and of each other. p_keyed: those of them that have a key,
-- or NULL. Locks: as the functions it calls.
CREATE OR REPLACE FUNCTION messages.apply_end_policies(
  p_worked text[], p_idle text[], p_keyed messages.ended_message[], p_result text
)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  PERFORM messages.subtract_depth(p_worked || p_idle);
  IF p_keyed IS NOT NULL THEN
    PERFORM messages.free_keys(p_keyed, p_result);
  END IF;
  -- Messages that no worker processed (skipped, fanned out) were no attempts: they say nothing about the handlers.
  IF p_worked IS NOT NULL AND p_result IN ('success', 'failed', 'lock_expired') THEN
    PERFORM messages.count_breaker_attempts(p_worked, p_result = 'success');
  END IF;
END
$$;

-- Free the keys of messages that ended: after key_ttl following a success, else at once.
-- Called by: apply_end_policies. p_ended: messages with a key. Locks: their rows of held_key, in their order.
CREATE OR REPLACE FUNCTION messages.free_keys(p_ended messages.ended_message[], p_result text)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_each record;
BEGIN
  FOR v_each IN
    SELECT p.id, p.topic, p.key, CASE WHEN p_result = 'success' THEN a.key_ttl END AS holds_on
    FROM unnest(p_ended) AS p
    CROSS JOIN LATERAL messages.publish_policy(p.topic) AS a
    WHERE EXISTS (SELECT FROM messages.held_key AS h WHERE h.topic = p.topic AND h.key = p.key AND h.message_id = p.id)
    ORDER BY p.topic COLLATE "C", p.key COLLATE "C"
  LOOP
    IF v_each.holds_on IS NULL THEN
      DELETE FROM messages.held_key AS h
      WHERE h.topic = v_each.topic AND h.key = v_each.key AND h.message_id = v_each.id;
    ELSE
      UPDATE messages.held_key AS h SET free_at = messages.now() + v_each.holds_on
      WHERE h.topic = v_each.topic AND h.key = v_each.key AND h.message_id = v_each.id;
    END IF;
  END LOOP;
END
$$;

-- Returns what the archive keeps of a message of this topic that succeeds: the topic's archive_success.
-- Called by: archive, complete. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.kept_of_success(p_topic text)
RETURNS text
LANGUAGE sql
STABLE
AS $$
  SELECT coalesce(
    (SELECT t.archive_success FROM messages.topic AS t WHERE t.topic = p_topic),
    (SELECT d.archive_success FROM messages.topic AS d WHERE d.topic = '*'))
$$;
