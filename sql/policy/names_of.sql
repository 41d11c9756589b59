-- Returns the names under which policies and subscriptions of a topic may stand: its own, and, if any pattern has one,
-- the patterns that match it, the most specific first.
-- Called by: subscribers, topic_state, retention_setter, and whatever asks whether a topic has subscribers. Locks:
-- nothing. While no pattern has a policy or a subscriber, it is one look at a sequence: see inherits_from.
CREATE OR REPLACE FUNCTION messages.names_of(p_topic text)
RETURNS text[]
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  IF pg_sequence_last_value('messages.pattern_flag') = 1 THEN
    RETURN ARRAY[p_topic];
  END IF;
  RETURN p_topic || messages.patterns_of(p_topic);
END
$$;
