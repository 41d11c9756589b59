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
