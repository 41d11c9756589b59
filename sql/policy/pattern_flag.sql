-- The value of the sequence messages.pattern_flag: whether any pattern of topics has a policy or a subscriber.
-- Called by: set_policy_bits, clear_policy_bits. Locks: nothing. Result: 3 = yes, 1 = no, so that a bit tells.
CREATE OR REPLACE FUNCTION messages.pattern_flag()
RETURNS bigint
LANGUAGE sql
STABLE
AS $$
  SELECT CASE
    WHEN EXISTS (SELECT FROM messages.topic AS t WHERE t.topic LIKE '_%*')
      OR EXISTS (SELECT FROM messages.subscription AS s WHERE s.topic LIKE '%*') THEN 3
    ELSE 1
  END::bigint
$$;
