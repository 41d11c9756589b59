-- Returns whether any of several topics may use a policy that publishing or settling must check.
-- Called by: archive, complete, retry, may_have_policy. p_bits: those of all of the topics (policy_topic_bit). Locks:
-- nothing, and it needs no snapshot. Result: as may_have_policy, for any of them; false or NULL if there are none.
CREATE OR REPLACE FUNCTION messages.may_have_policies(p_bits bigint)
RETURNS boolean
LANGUAGE sql
VOLATILE
AS $$
  SELECT p_bits <> 0 AND pg_sequence_last_value('messages.policy_topic_bits') & p_bits IS DISTINCT FROM 0
$$;
