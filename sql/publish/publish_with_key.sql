-- Publish one message whose key may be held.
-- Called by: publish while some topic has a policy that publishing has to look at, fan_out. p_on_conflict: error,
-- replace, ignore or append. p_is_deadline: as for insert_or_merge. Locks: as upsert and the triggers of
-- messages.message.
-- Result: the id of the message that now has the key, and what happened: inserted, replaced, ignored, appended, dropped
-- (no id), or held: the topic has a key_ttl, and the message that holds the key runs, waits for a retry, or was
-- completed recently.
CREATE OR REPLACE FUNCTION messages.publish_with_key(
  p_new messages.message, p_on_conflict text, p_is_deadline boolean DEFAULT false, OUT id bigint, OUT outcome text
)
LANGUAGE plpgsql
AS $$
DECLARE
  v_holder     messages.held_key;
  v_constraint text;
BEGIN
  IF p_new.key IS NULL OR p_on_conflict = 'error'
    OR (SELECT a.key_ttl IS NULL FROM messages.publish_policy(p_new.topic) AS a) THEN
    SELECT u.id, u.outcome INTO publish_with_key.id, publish_with_key.outcome
    FROM messages.insert_or_merge(p_new, p_on_conflict, p_is_deadline) AS u;
    RETURN;
  END IF;

  -- The holder of the key may change between the look and the INSERT. Each further try needs another session to have
  -- been faster.
  FOR v_try IN 1..10 LOOP
    v_holder := messages.key_holder(p_new.topic, p_new.key);
    publish_with_key.id := v_holder.message_id;
    outcome := 'held';
    EXIT WHEN publish_with_key.id IS NOT NULL AND messages.pending_with_key(p_new.topic, p_new.key) IS NULL;
    BEGIN
      SELECT u.id, u.outcome INTO publish_with_key.id, publish_with_key.outcome
      FROM messages.insert_or_merge(p_new, p_on_conflict, p_is_deadline) AS u;
      EXIT;
    EXCEPTION WHEN unique_violation THEN
      GET STACKED DIAGNOSTICS v_constraint = CONSTRAINT_NAME;
      IF v_constraint <> 'held_key_pkey' THEN
        RAISE;
      END IF;
    END;
  END LOOP;
END
$$;
