-- The most specific of some patterns that matches a topic: see patterns_of.
-- Called by: claim_with_next_due, next_topic, paused_topics, waiting_topics. Locks: nothing. Result: NULL = none
-- matches.
CREATE OR REPLACE FUNCTION messages.find_pattern(p_patterns text[], p_topic text)
RETURNS text
LANGUAGE plpgsql
IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
  v_pattern text;
BEGIN
  FOREACH v_pattern IN ARRAY messages.patterns_of(p_topic) LOOP
    IF v_pattern = ANY (p_patterns) THEN
      RETURN v_pattern;
    END IF;
  END LOOP;
  RETURN NULL;
END
$$;
