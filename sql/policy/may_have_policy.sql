-- Returns whether a topic may use a policy that publishing or settling must check: false for nearly all topics that
-- have none.
-- Called by: publish and the trigger apply_publish_policies. Locks: nothing, and it needs no snapshot. Result: as
-- has_policies, for this topic; true as well for a topic without a policy whose name has the bit of one that has (see
-- policy_topic_bits), and if the sequence says nothing, as after ALTER SEQUENCE ... RESTART.
CREATE OR REPLACE FUNCTION messages.may_have_policy(p_topic text)
RETURNS boolean
LANGUAGE sql
VOLATILE
AS $$
  SELECT messages.may_have_policies(messages.policy_topic_bit(p_topic))
$$;
