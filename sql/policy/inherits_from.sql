-- Returns which row of `messages.inherited_policy` a topic inherits: that of the most specific pattern that matches it
-- and has a policy, otherwise `*`. What the topic's own row of `messages.topic` does not set is as in that row.
--
-- Result: the `topic` of that row.
-- Errors: none.
-- Locks: none.
-- Called by: whatever reads the policy of a topic.
-- Inside: while no pattern has a policy or a subscriber, this is one look at a sequence, which needs no snapshot. In
-- plpgsql and STABLE: an index can be searched for its result; a function of SQL that reads a sequence is VOLATILE.
CREATE OR REPLACE FUNCTION messages.inherits_from(p_topic text)
RETURNS text
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_pattern text;
BEGIN
  IF pg_catalog.pg_sequence_last_value('messages.pattern_flag') OPERATOR(pg_catalog.=) 1 THEN
    RETURN '*';
  END IF;
  FOREACH v_pattern IN ARRAY messages.patterns_of(p_topic) LOOP
    IF EXISTS (SELECT FROM messages.inherited_policy AS d WHERE d.topic OPERATOR(pg_catalog.=) v_pattern) THEN
      RETURN v_pattern;
    END IF;
  END LOOP;
  RETURN '*';
END
$$;
