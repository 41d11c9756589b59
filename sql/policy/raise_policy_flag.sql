-- Record that some topic uses a policy that publishing or settling must check, and which topics do.
-- Called by: sessions that wrote such a policy, in the same transaction. Locks: nothing. A session that wrote a policy holds a lock on its
-- table until it commits, with which messages.lower_policy_flag conflicts: it never lowers the flag while there is a policy that it cannot
-- see yet.
CREATE OR REPLACE FUNCTION messages.raise_policy_flag()
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  IF NOT messages.has_policies() THEN
    PERFORM setval('messages.policy_flag', 2);
  END IF;
  -- Bits are only added here. Who changes a topic has waited for all others who do, so none takes back what another one adds.
  PERFORM setval('messages.policy_topic_bits', p.had | p.has)
  FROM (SELECT pg_sequence_last_value('messages.policy_topic_bits') AS had, messages.policy_topic_bits() AS has) AS p
  WHERE p.had | p.has <> p.had;
END
$$;
