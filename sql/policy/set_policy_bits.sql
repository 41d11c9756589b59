-- Record which topics use a policy that publishing or settling must check, and whether patterns have any: see
-- policy_topic_bits, always_topic_bits, pattern_flag.
-- Called by: the triggers topic_changed and subscription_changed, in the transaction of the change, once they have
-- locked the mutex 'policies'.
-- Locks: nothing. A session that wrote a policy holds a lock on its table until it commits, with which
-- messages.clear_policy_bits conflicts: it never clears the bit of a policy that it cannot see yet.
CREATE OR REPLACE FUNCTION messages.set_policy_bits()
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  -- Bits are only added here. Who changes a policy has waited for all others who do, so none takes back what another
  -- one adds.
  PERFORM setval(p.sequence, p.had | p.has)
  FROM (VALUES
    ('messages.policy_topic_bits'::regclass, pg_sequence_last_value('messages.policy_topic_bits'),
     messages.policy_topic_bits()),
    ('messages.always_topic_bits', pg_sequence_last_value('messages.always_topic_bits'), messages.always_topic_bits()),
    ('messages.pattern_flag', pg_sequence_last_value('messages.pattern_flag'), messages.pattern_flag())
  ) AS p (sequence, had, has)
  WHERE p.had | p.has <> p.had;
END
$$;
