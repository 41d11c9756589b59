-- What the policies of their topics want when messages end: one line per policy, each looking at nothing but its own messages.
-- Called by: archive, in its transaction, only while some topic uses such a policy. Locks: as the functions it calls.
CREATE OR REPLACE FUNCTION messages.depart(p_departed messages.departed[], p_result text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  PERFORM messages.lower_depth(p_departed);
  PERFORM messages.free_keys(p_departed, p_result);
  IF p_result IN ('success', 'failed', 'lock_expired') THEN
    PERFORM messages.count_attempts(ARRAY(SELECT d.topic FROM unnest(p_departed) AS d WHERE d.topic IS NOT NULL), p_result = 'success');
  END IF;
END
$$;
