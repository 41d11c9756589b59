-- The topics that publishing or settling must check, as the bits of the sequence messages.policy_topic_bits: those with
-- such a policy or with subscribers, and those that have a counter of depth or held keys of an earlier policy.
-- Called by: set_policy_bits, clear_policy_bits, prune. Locks: nothing. Result: bit 0, and the bits of these topics;
-- all bits if the row '*' has such a policy, or a pattern has one or subscribers.
CREATE OR REPLACE FUNCTION messages.policy_topic_bits()
RETURNS bigint
LANGUAGE sql
STABLE
AS $$
  -- A loose scan: one entry of the index for each topic, however many keys are held.
  WITH RECURSIVE keyed AS (
    (SELECT h.topic::text AS topic FROM messages.held_key AS h ORDER BY h.topic LIMIT 1)
    UNION ALL
    SELECT n.topic
    FROM keyed AS k
    CROSS JOIN LATERAL (
      SELECT h.topic::text AS topic FROM messages.held_key AS h
      WHERE h.topic > k.topic COLLATE "C" ORDER BY h.topic LIMIT 1
    ) AS n
  )
  SELECT coalesce(
    bit_or(CASE WHEN right(p.topic, 1) = '*' THEN 9223372036854775807 ELSE messages.policy_topic_bit(p.topic) END), 0
  ) | 1
  FROM (
    SELECT t.topic::text AS topic FROM messages.topic AS t WHERE messages.needs_policy_bit(t)
    UNION
    SELECT s.topic::text FROM messages.subscription AS s
    UNION
    SELECT d.topic::text FROM messages.depth AS d
    UNION
    SELECT k.topic FROM keyed AS k
  ) AS p
$$;
