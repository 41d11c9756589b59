-- Insert a message, or apply p_on_conflict to the message that waits with its key.
-- Called by: publish, publish_with_key. An id is drawn unless p_new has one. p_is_deadline: p_new expires at a time
-- that the publisher gave, not after a TTL. Result: as messages.publish_with_key, except for held.
-- Locks: the row that is changed. If another session is claiming the message, this waits for it and then does not touch
-- or lock it (ON CONFLICT DO UPDATE does that; an UPDATE would block the heartbeat); then a new message is inserted.
CREATE OR REPLACE FUNCTION messages.insert_or_merge(
  p_new messages.message, p_on_conflict text, p_is_deadline boolean DEFAULT false, OUT id bigint, OUT outcome text
)
LANGUAGE plpgsql
AS $$
DECLARE
  v_own     bigint := coalesce(p_new.id, nextval('messages.message_id_seq'));
  v_pending bigint;
  v_bytes   bigint;
BEGIN
  IF p_on_conflict = 'ignore' THEN
    insert_or_merge.id := messages.pending_with_key(p_new.topic, p_new.key);
    outcome := 'ignored';
    IF insert_or_merge.id IS NOT NULL THEN
      RETURN;
    END IF;
  END IF;

  INSERT INTO messages.message AS m
    (id, topic, channel, key, priority, payload, body, headers, available_at, expires_at, max_attempts,
     timeout, backoff, retention, debounce_limit, origin_id, batch_id)
  OVERRIDING SYSTEM VALUE
  VALUES
    (v_own, p_new.topic, p_new.channel, p_new.key, p_new.priority, p_new.payload, p_new.body, p_new.headers,
     p_new.available_at, p_new.expires_at, p_new.max_attempts, p_new.timeout, p_new.backoff, p_new.retention,
     p_new.debounce_limit, p_new.origin_id, p_new.batch_id)
  ON CONFLICT (topic, key) WHERE key IS NOT NULL AND attempts = 0 AND claim_id IS NULL
  DO UPDATE SET
    payload = CASE p_on_conflict WHEN 'append' THEN messages.jsonb_to_array(m.payload) || excluded.payload
      ELSE excluded.payload END,
    body = excluded.body,
    headers = CASE p_on_conflict
      WHEN 'append' THEN coalesce(m.headers || excluded.headers, m.headers, excluded.headers) ELSE excluded.headers END,
    -- A TTL counts from when the message that waits is available: else a delayed one might expire before. A wait for an
    -- event ends now. debounce_message does this for debounced ones.
    expires_at = CASE
      WHEN p_is_deadline OR p_new.debounce_limit IS NOT NULL OR excluded.expires_at IS NULL THEN excluded.expires_at
      ELSE least(
        excluded.expires_at - greatest(excluded.available_at, messages.now()) + greatest(
          CASE
            WHEN p_on_conflict = 'append' OR m.history #>> '{-1,outcome}' IS DISTINCT FROM 'waiting' THEN m.available_at
          END, messages.now()),
        '9000-01-01 00:00+00')
    END,
    -- The state that a deferred run has kept is about the earlier payload.
    state = CASE p_on_conflict WHEN 'append' THEN m.state END
  -- There is nothing to append to bytes.
  WHERE p_on_conflict = 'replace' OR (p_on_conflict = 'append' AND m.payload IS NOT NULL)
  RETURNING m.id, CASE WHEN p_on_conflict = 'append' THEN octet_length(m.payload::text) END
  INTO insert_or_merge.id, v_bytes;

  -- The INSERT has locked the message that has the key, so this finds it. Where there is none, admit_message dropped
  -- the new one.
  IF insert_or_merge.id IS NULL THEN
    v_pending := messages.pending_with_key(p_new.topic, p_new.key);
  END IF;
  outcome := CASE
    WHEN insert_or_merge.id = v_own THEN 'inserted'
    WHEN insert_or_merge.id IS NOT NULL THEN CASE p_on_conflict WHEN 'append' THEN 'appended' ELSE 'replaced' END
    WHEN v_pending IS NULL OR p_on_conflict = 'replace' THEN 'dropped'
    -- The message with the key came after admit_message had looked for one.
    WHEN p_on_conflict = 'append' AND messages.has_payload(v_pending) THEN 'dropped'
    ELSE p_on_conflict
  END;
  -- Before it is debounced: a wait for an event that ends has moved its time.
  IF outcome = 'replaced' AND pg_sequence_last_value('messages.awaited_flag') > 1 THEN
    PERFORM messages.delete_replaced_steps(insert_or_merge.id);
  END IF;
  -- A statement of its own, since the one above would prepare this for every publish. It holds the lock of the row.
  IF p_new.debounce_limit IS NOT NULL AND outcome IN ('replaced', 'appended') THEN
    PERFORM messages.debounce_message(insert_or_merge.id, p_new.available_at);
  END IF;
  -- The result may tell what the message has: others who expected it may not know what this role has put there.
  IF outcome IN ('replaced', 'appended') THEN
    DELETE FROM messages.expected_result AS x WHERE x.message_id = insert_or_merge.id AND x.role <> session_user;
  END IF;
  -- One that waits for others is released with the newest TTL.
  IF outcome IN ('replaced', 'appended') AND pg_sequence_last_value('messages.awaited_flag') > 1 THEN
    UPDATE messages.blocked_message AS k SET ttl = p_new.expires_at - greatest(p_new.available_at, clock_timestamp())
    WHERE k.id = insert_or_merge.id;
    IF FOUND THEN
      UPDATE messages.message AS m SET expires_at = NULL WHERE m.id = insert_or_merge.id;
    END IF;
  END IF;
  CASE outcome
    WHEN 'appended' THEN
      PERFORM messages.check_payload_size(
        p_new.topic, v_bytes, (SELECT a.max_payload_bytes FROM messages.publish_policy(p_new.topic) AS a));
    WHEN 'ignore' THEN
      insert_or_merge.id := v_pending;
      outcome := 'ignored';
    WHEN 'append' THEN
      RAISE EXCEPTION 'message % of key "%" in topic % has a body: nothing can be appended to it',
        v_pending, p_new.key, p_new.topic
        USING ERRCODE = '22023', HINT = 'use on_conflict replace';
    WHEN 'error' THEN
      RAISE EXCEPTION 'key "%" of topic % is in use: message % waits', p_new.key, p_new.topic, v_pending
        USING ERRCODE = '23505', SCHEMA = 'messages', TABLE = 'message', CONSTRAINT = 'message_key',
              HINT = 'use on_conflict replace, ignore or append';
    ELSE NULL;
  END CASE;
END
$$;

-- Tells whether a message has a payload; NULL = there is no such message.
-- Called by: insert_or_merge, which has no settings of its own: each publish with a key would pay for them.
-- Locks: nothing.
CREATE OR REPLACE FUNCTION messages.has_payload(p_id bigint)
RETURNS boolean
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  RETURN (SELECT m.payload IS NOT NULL FROM messages.message AS m WHERE m.id = p_id);
END
$$;

-- Delete the steps of a message whose payload was replaced: a run saved them for the old payload, before it returned
-- its attempt. A wait for an event is one of them: without it no signal makes the message available, so it is made
-- available here.
-- Called by: insert_or_merge, which has just changed the message. Locks: the steps; as make_available.
CREATE OR REPLACE FUNCTION messages.delete_replaced_steps(p_id bigint)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  DELETE FROM messages.step AS s WHERE s.message_id = p_id;
  IF FOUND AND (SELECT m.history -> -1 ->> 'outcome' = 'waiting' FROM messages.message AS m WHERE m.id = p_id) THEN
    PERFORM messages.make_available(ARRAY[p_id]);
  END IF;
END
$$;
