-- Say that some topic uses a policy that publishing or settling has to look at, and which topics do.
-- Called by: whoever has written such a policy, in the transaction that wrote it and before it is committed.
-- Locks: nothing. Whoever has written a policy holds a lock on its table until that is committed, with which messages.unmark_policed conflicts: it
-- never lowers the mark while a policy is written that it cannot see yet.
CREATE OR REPLACE FUNCTION messages.mark_policed()
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  IF NOT messages.is_policed() THEN
    PERFORM setval('messages.policed', 2);
  END IF;
  -- Bits are only added here. Who changes a topic has waited for all others who do, so none takes back what another one adds.
  PERFORM setval('messages.policed_topics', p.had | p.has)
  FROM (SELECT pg_sequence_last_value('messages.policed_topics') AS had, messages.policed_topics() AS has) AS p
  WHERE p.had | p.has <> p.had;
END
$$;
