-- Returns whether a topic's row holds a policy that publishing or settling must check.
-- Called by: policy_topic_bits and the trigger admit_message. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.needs_policy_bit(p_topic messages.topic)
RETURNS boolean
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT num_nonnulls(
           p_topic.key_ttl, p_topic.ttl, p_topic.max_depth, p_topic.max_payload_bytes, p_topic.publish_rate,
           p_topic.breaker,
           p_topic.payload_schema) > 0
    OR p_topic.accept_publishes IS FALSE
$$;
