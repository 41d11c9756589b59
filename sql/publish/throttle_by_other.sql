-- Say by which message a key is throttled whose new message was not inserted: by one that was published without
-- throttle and has the key; by none if the topic was full.
-- Called by: publish, after throttle_key. p_id: that message; NULL = none. Locks: the row of the key.
CREATE OR REPLACE FUNCTION messages.throttle_by_other(p_topic text, p_key text, p_id bigint)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  IF p_id IS NULL THEN
    DELETE FROM messages.throttled_key AS t WHERE t.topic = p_topic AND t.key = p_key;
  ELSE
    UPDATE messages.throttled_key AS t SET message_id = p_id WHERE t.topic = p_topic AND t.key = p_key;
  END IF;
END
$$;
