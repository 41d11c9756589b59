-- Refuse a message that says of its own attempts, or of its archive row, what cannot be. p_of: what says it.
-- Called by: publish, only for a message that says any of it; check_schedule. The domains of the columns of a message,
-- and the constraints of a schedule, have the same bounds: they name a constraint, this says what to change.
-- Locks: nothing. Errors: 22023.
CREATE OR REPLACE FUNCTION messages.check_own_policy(
  p_timeout interval, p_backoff jsonb, p_retention interval, p_of text DEFAULT 'publish'
)
RETURNS void
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_backoff record;
  v_problem text;
BEGIN
  SELECT c.problem, c.hint INTO v_backoff FROM messages.check_backoff(p_backoff) AS c;
  v_problem := CASE
    WHEN p_timeout NOT BETWEEN '1 ms' AND '30 days'
      THEN format('timeout is %s: use an interval from 1 ms to 30 days', p_timeout)
    WHEN p_retention NOT BETWEEN '1 hour' AND '36500 days'
      THEN format('retention is %s: use an interval from 1 hour to 36500 days', p_retention)
    WHEN v_backoff.problem IS NOT NULL THEN format('backoff: %s: %s', v_backoff.problem, v_backoff.hint)
  END;
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION '%: %', p_of, v_problem USING ERRCODE = '22023';
  END IF;
END
$$;
