-- Releases messages that come after others, as if those had succeeded. Use it for messages that wait for a dead or
-- cancelled message that no one will redrive. Messages that come after the released ones still wait for them.
--
-- Result: the ids that were released. The others did not wait for a message, have ended, or are held by another
-- transaction right now; the next tick releases the latter.
-- Errors: none.
-- Locks: their rows of `messages.blocked_message`, in the order of their ids, until the transaction ends. Commit soon:
-- a message that they come after cannot end before that.
-- Repeat: safe. The call is recorded in `messages.audit`.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.unblock(p_ids bigint[])
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids    bigint[];
  v_topics text[];
BEGIN
  -- Before the clock is read: a message must not seem older than its transaction, or claims look for it too late.
  PERFORM pg_current_xact_id();
  v_ids := ARRAY(SELECT k.id FROM messages.blocked_message AS k WHERE k.id = ANY (p_ids) ORDER BY k.id FOR UPDATE);
  DELETE FROM messages.dependency AS g WHERE g.successor_id = ANY (v_ids);
  PERFORM messages.resolve_blocked(v_ids);
  SELECT coalesce(array_agg(m.id ORDER BY m.id), '{}'), array_agg(DISTINCT m.topic::text)
  INTO v_ids, v_topics
  FROM messages.message AS m
  WHERE m.id = ANY (v_ids) AND NOT EXISTS (SELECT FROM messages.blocked_message AS k WHERE k.id = m.id);
  PERFORM messages.audit_messages('unblock', v_topics, v_ids);
  RETURN v_ids;
END
$$;
