-- Unlock messages and return their attempt: nothing failed.
-- Called by: release (p_outcome NULL: keeps its place in the queue), defer and wait_for_event. Not granted to any role.
-- p_ran: which of them had begun (NULL = none): the run of these stays counted. With strict_lock an expired lock is
-- lost. Times that cannot be stored are clamped (to 1000 years from now, or to the years 1970 to 9000): one message
-- must not fail the batch. A message of the same key that commits in between would be a unique violation: the next try
-- sees it, and gives way to it. (Not above READ COMMITTED, where no try would see it: there the error is raised.)
-- Locks: as try_return_attempts. Result: the ids that were unlocked or gave way.
CREATE OR REPLACE FUNCTION messages.return_attempts(
  p_ids bigint[], p_claim_ids bigint[], p_delays interval[], p_untils timestamptz[], p_states jsonb[], p_outcome text,
  p_ran boolean[] DEFAULT NULL
)
RETURNS bigint[]
LANGUAGE plpgsql
AS $$
BEGIN
  IF EXISTS (
    SELECT FROM unnest(p_ids) AS e (id)
    JOIN messages.message AS m ON m.id = ANY (ARRAY[e.id])
    WHERE m.key IS NOT NULL AND m.attempts = 1)
  THEN
    FOR v_try IN 1..20 LOOP
      BEGIN
        RETURN messages.try_return_attempts(p_ids, p_claim_ids, p_delays, p_untils, p_states, p_outcome, p_ran);
      EXCEPTION WHEN unique_violation THEN
        NULL;
      END;
    END LOOP;
  END IF;
  RETURN messages.try_return_attempts(p_ids, p_claim_ids, p_delays, p_untils, p_states, p_outcome, p_ran);
END
$$;
