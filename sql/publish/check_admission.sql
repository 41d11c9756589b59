-- Refuse a message that its topic does not accept.
-- Called by: the trigger admit_message, check_ignored. p_max_bytes NULL = no limit. Locks: nothing.
-- Errors: PGR03 the topic does not accept publishes, PGR04 too large.
CREATE OR REPLACE FUNCTION messages.check_admission(
  p_topic text, p_payload jsonb, p_body bytea, p_accepts boolean, p_max_bytes integer
)
RETURNS void
LANGUAGE plpgsql
IMMUTABLE
AS $$
BEGIN
  IF NOT p_accepts THEN
    RAISE EXCEPTION 'topic % does not accept publishes', p_topic
      USING ERRCODE = 'PGR03', HINT = 'set accept_publishes for it in messages.topic, or check the name';
  END IF;
  IF p_max_bytes IS NOT NULL THEN
    PERFORM messages.check_payload_size(
      p_topic, coalesce(octet_length(p_payload::text), octet_length(p_body)), p_max_bytes);
  END IF;
END
$$;
