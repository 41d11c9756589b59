-- Let publishes know until when somebody may be armed, before the flag itself is committed.
-- Called by: arm, topic_changed, prune. Locks: an advisory lock until the transaction ends: two that raise it at once must not undo each other.
-- Never lowers it: that is for lower_armed alone.
CREATE OR REPLACE FUNCTION messages.raise_armed(p_until timestamptz)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_until bigint := ceil(extract(epoch FROM p_until))::bigint;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('messages.armed', 0));
  IF pg_sequence_last_value('messages.armed') < v_until THEN
    PERFORM setval('messages.armed', v_until);
  END IF;
END
$$;
