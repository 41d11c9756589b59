-- Settle: try again later. The lock is freed and the attempt is given back: a deferral is no failure and uses nothing up.
-- Called by: workers. p_delays: from now; p_untils: at that time (takes precedence); neither: at once.
-- p_states: a new checkpoint; NULL keeps the old one, JSON null clears it.
-- Locks: the rows. Result: the ids whose lock was lost; nothing was changed for them.
CREATE OR REPLACE FUNCTION messages.defer(
  p_ids       bigint[],
  p_claim_ids bigint[],
  p_delays    interval[]    DEFAULT NULL,
  p_untils    timestamptz[] DEFAULT NULL,
  p_states    jsonb[]       DEFAULT NULL
)
RETURNS bigint[]
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT messages.lost_ids(p_ids, p_claim_ids, messages.return_attempts(p_ids, p_claim_ids, p_delays, p_untils, p_states, 'deferred'), NULL)
$$;
