-- Hold the keys of messages whose topics have key_ttl: until they end, and for key_ttl after a success.
-- Called by: the trigger apply_publish_policies, once per statement. p_forced: these (inserted by the queue itself) get
-- the key only if it is free.
-- Locks: the rows of held_key in their order. Raises 23505 if another message holds a key, running, waiting to be
-- retried or completed.
CREATE OR REPLACE FUNCTION messages.hold_keys(p_ids bigint[], p_topics text[], p_keys text[], p_forced boolean[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_each   record;
  v_holder messages.held_key;
BEGIN
  FOR v_each IN
    SELECT e.*
    FROM unnest(p_ids, p_topics, p_keys, p_forced) AS e (id, topic, key, is_forced)
    CROSS JOIN LATERAL messages.publish_policy(e.topic) AS a
    WHERE a.key_ttl IS NOT NULL
    ORDER BY e.topic COLLATE "C", e.key COLLATE "C"
  LOOP
    -- Read first: a row that is held must not be locked, its message could not end before this transaction does.
    LOOP
      v_holder := messages.key_holder(v_each.topic, v_each.key);
      EXIT WHEN v_holder.message_id IS NOT NULL;
      INSERT INTO messages.held_key AS h (topic, key, message_id) VALUES (v_each.topic, v_each.key, v_each.id)
      ON CONFLICT (topic, key) DO UPDATE SET message_id = excluded.message_id, free_at = NULL
        WHERE h.free_at <= messages.now();
      EXIT WHEN FOUND;
      -- Another session was faster. The row is locked now; it holds the key, or its time has passed since.
    END LOOP;
    CONTINUE WHEN v_holder.message_id IS NULL OR v_each.is_forced;
    RAISE EXCEPTION 'key "%" of topic % is held by message % until %', v_each.key, v_each.topic, v_holder.message_id,
      coalesce(v_holder.free_at::text, 'it has ended')
      USING ERRCODE = '23505', SCHEMA = 'messages', TABLE = 'held_key', CONSTRAINT = 'held_key_pkey',
            HINT = 'the topic has a key_ttl; on_conflict ignore tells the message that holds it';
  END LOOP;
END
$$;
