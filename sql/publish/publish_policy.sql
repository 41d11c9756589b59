-- The policy in force for publishing to one topic. NULL in a column means no such limit.
-- Called by: admit_message, publish_with_key, add_depth, charge_publish_rate, hold_keys, free_keys, recount_depth.
-- Locks: nothing.
CREATE OR REPLACE FUNCTION messages.publish_policy(
  p_topic text,
  OUT ttl interval, OUT key_ttl interval, OUT max_depth bigint, OUT on_full text, OUT max_payload_bytes integer,
  OUT publish_rate double precision, OUT burst integer, OUT accept_publishes boolean
)
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  SELECT nullif(coalesce(t.ttl, d.ttl), '0'),
         nullif(coalesce(t.key_ttl, d.key_ttl), '0'),
         nullif(coalesce(t.max_depth, d.max_depth), 0),
         coalesce(t.on_full, d.on_full),
         coalesce(t.max_payload_bytes, d.max_payload_bytes),
         nullif(coalesce(t.publish_rate, d.publish_rate), 0),
         -- A second's worth.
         coalesce(t.burst, d.burst, greatest(1, ceil(coalesce(t.publish_rate, d.publish_rate)))::integer),
         coalesce(t.accept_publishes, d.accept_publishes)
  INTO ttl, key_ttl, max_depth, on_full, max_payload_bytes, publish_rate, burst, accept_publishes
  FROM messages.inherited_policy AS d
  LEFT JOIN messages.topic AS t ON t.topic = p_topic
  WHERE d.topic = messages.inherits_from(p_topic);
END
$$;
