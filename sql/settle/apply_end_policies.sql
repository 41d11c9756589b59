-- Apply the policies of topics to messages that ended: one line per policy, each reading only its own messages.
-- Called by: archive, in its transaction, only while some topic uses such a policy. p_topics: one entry for each message; p_keyed: those of
-- them that have a key, or NULL. Locks: as the functions it calls.
CREATE OR REPLACE FUNCTION messages.apply_end_policies(p_topics text[], p_keyed messages.ended_message[], p_result text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  PERFORM messages.subtract_depth(p_topics);
  IF p_keyed IS NOT NULL THEN
    PERFORM messages.free_keys(p_keyed, p_result);
  END IF;
END
$$;
