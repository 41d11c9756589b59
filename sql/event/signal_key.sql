-- Signals an event to the message of a topic that has a key, as `messages.signal` does. If several messages have the
-- key, it is the one that waits for this event, otherwise the one with the lowest id.
--
-- Arguments: as in `messages.signal`.
-- Result: the id of the message; NULL = no message with this key is waiting or running, and nothing was changed.
-- Errors: 22004 without a topic or a key; otherwise as `messages.signal`.
-- Locks: as `messages.signal`.
-- Cost: reads the messages with this key, and the running ones of the topic.
-- Repeat: as `messages.signal`.
-- Called by: publishers, workers, operators, and the web server.
CREATE OR REPLACE FUNCTION messages.signal_key(
  p_topic text, p_key text, p_name text, p_payload jsonb DEFAULT NULL, p_number integer DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_id bigint;
BEGIN
  PERFORM messages.check_event_name(p_name);
  IF num_nulls(p_topic, p_key) > 0 THEN
    RAISE EXCEPTION 'signal_key needs a topic and a key' USING ERRCODE = '22004';
  END IF;
  -- One statement, so that no message is missed that changes from one of these states to another. Each branch has an
  -- index.
  SELECT c.id INTO v_id
  FROM (
    SELECT m.id, m.claim_id, m.history FROM messages.message AS m
    WHERE m.topic = p_topic AND m.key = p_key AND m.key IS NOT NULL AND m.attempts = 0 AND m.claim_id IS NULL
    UNION ALL
    SELECT m.id, m.claim_id, m.history FROM messages.message AS m
    WHERE m.topic = p_topic AND m.key = p_key AND m.key IS NOT NULL AND m.attempts > 0 AND m.claim_id IS NULL
    UNION ALL
    SELECT m.id, m.claim_id, m.history FROM messages.message AS m
    WHERE m.topic = p_topic AND m.claim_id IS NOT NULL AND m.key = p_key
  ) AS c
  LEFT JOIN messages.step AS w ON w.message_id = c.id AND w.name = 'event:wait'
  ORDER BY (
    c.claim_id IS NULL AND c.history -> -1 ->> 'outcome' = 'waiting' AND w.result ->> 'name' = p_name) IS TRUE DESC,
    c.id
  LIMIT 1;
  RETURN CASE WHEN v_id IS NOT NULL THEN messages.signal(v_id, p_name, p_payload, p_number) END;
END
$$;
