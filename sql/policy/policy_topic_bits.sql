-- The topics that use a policy that publishing must check, as the bits of the sequence messages.policy_topic_bits.
-- Called by: raise_policy_flag, lower_policy_flag, prune. Locks: nothing. Result: bit 0, and the bits of these topics; all bits if the row
-- '*' does.
CREATE OR REPLACE FUNCTION messages.policy_topic_bits()
RETURNS bigint
LANGUAGE sql
STABLE
AS $$
  SELECT coalesce(
    bit_or(CASE t.topic WHEN '*' THEN 9223372036854775807 ELSE 1::bigint << 1 + (hashtext(t.topic::text) & 2147483647) % 62 END), 0) | 1
  FROM messages.topic AS t
  WHERE messages.needs_policy_flag(t)
$$;
