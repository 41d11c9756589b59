-- The bit of a topic: one of 62, by the hash of its name. The trigger admit_message, and
-- pgrouse.publishing.publish_statement, write the same where they call no function.
-- Called by: policy_topic_bits, always_topic_bits, may_have_policy. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.policy_topic_bit(p_topic text)
RETURNS bigint
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT 1::bigint << 1 + (hashtext(p_topic) & 2147483647) % 62
$$;
