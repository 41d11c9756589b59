-- Returns whether any topic may use a policy that publishing or settling must check.
-- Called by: publish_staged, publish_staged_with_key, clear_policy_bits. Locks: nothing, and it needs no snapshot.
-- Result: true once such a policy was written, even if it is not committed yet; false again some time after the last
-- one was removed.
CREATE OR REPLACE FUNCTION messages.has_policies()
RETURNS boolean
LANGUAGE sql
VOLATILE
AS $$
  SELECT pg_sequence_last_value('messages.policy_topic_bits') IS DISTINCT FROM 1
$$;
