-- Take a key for a new message that is published with throttle.
-- Called by: publish. p_id: the id of the new message. Locks: the row of the key, if the key is taken or another
-- session is taking it, for which this waits. Result: NULL = it is taken; otherwise the id of the message because of
-- which the key is throttled.
CREATE OR REPLACE FUNCTION messages.throttle_key(p_topic text, p_key text, p_id bigint, p_throttle interval)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_last bigint;
BEGIN
  LOOP
    -- Read first: a publish that is ignored writes and locks nothing.
    SELECT t.message_id INTO v_last FROM messages.throttled_key AS t
    WHERE t.topic = p_topic AND t.key = p_key AND messages.is_throttled(t, p_throttle);
    EXIT WHEN FOUND;
    INSERT INTO messages.throttled_key AS t (topic, key, message_id, published_at, throttle, check_at)
    VALUES (p_topic, p_key, p_id, messages.now(), p_throttle, messages.now() + p_throttle)
    ON CONFLICT (topic, key) DO UPDATE
      SET message_id = excluded.message_id, published_at = excluded.published_at, throttle = excluded.throttle,
        check_at = excluded.check_at
      WHERE NOT messages.is_throttled(t, p_throttle);
    EXIT WHEN FOUND;
    -- Another session was faster.
  END LOOP;
  RETURN v_last;
END
$$;
