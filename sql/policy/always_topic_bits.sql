-- The topics with notify = 'always', as the bits of the sequence messages.always_topic_bits (see policy_topic_bit).
-- Called by: set_policy_bits, clear_policy_bits, prune. Locks: nothing. Result: bit 0, and the bits of these topics;
-- all bits if the row '*' or that of a pattern says always.
CREATE OR REPLACE FUNCTION messages.always_topic_bits()
RETURNS bigint
LANGUAGE sql
STABLE
AS $$
  SELECT coalesce(
    bit_or(CASE WHEN right(t.topic, 1) = '*' THEN 9223372036854775807 ELSE messages.policy_topic_bit(t.topic) END), 0
  ) | 1
  FROM messages.topic AS t
  WHERE t.notify = 'always'
$$;
