-- Refuse a message that its key keeps out, if its topic would refuse it anyway: whether a publisher may publish must
-- not depend on what waits or runs.
-- Called by: publish. Locks: nothing.
-- Errors: as check_admission. What is counted (PGR01, PGR02) refuses nothing here: nothing is added.
CREATE OR REPLACE FUNCTION messages.check_ignored(p_topic text, p_payload jsonb, p_body bytea)
RETURNS void
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  IF messages.may_have_policy(p_topic) THEN
    PERFORM messages.check_admission(p_topic, p_payload, p_body, a.accept_publishes, a.max_payload_bytes)
    FROM messages.publish_policy(p_topic) AS a;
  END IF;
END
$$;
