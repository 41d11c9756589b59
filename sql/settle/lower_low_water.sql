-- Lower the low-water marks that lie above messages which become ready again, so that claims find these at once.
-- Called by: retry, return_attempts, in the transaction of the messages. p_places: one for each message; at: its
-- available_at.
-- Locks: the rows of low_water in the order of its key, each waited for 200 ms at the most, and only where a mark must
-- be lowered: a transaction that settles in several statements has no order that another one could keep, and would
-- deadlock. What is not free by then is left to raise_low_water, which lowers a mark when it reads from the left edge
-- again, and notifies.
CREATE OR REPLACE FUNCTION messages.lower_low_water(p_places messages.low_water[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_wait text := current_setting('lock_timeout');
BEGIN
  IF NOT EXISTS (
    SELECT FROM unnest(p_places) AS p
    JOIN messages.low_water AS w ON w.topic = p.topic AND w.priority = p.priority
    WHERE w.at > p.at) THEN
    RETURN;
  END IF;
  -- If it is undone, so is the timeout.
  BEGIN
    PERFORM set_config('lock_timeout', '200ms', true);
    UPDATE messages.low_water AS w
    SET at = l.at
    FROM (SELECT p.topic, p.priority, min(p.at) AS at FROM unnest(p_places) AS p GROUP BY 1, 2 ORDER BY 1, 2) AS l
    WHERE w.topic = l.topic AND w.priority = l.priority AND w.at > l.at;
    PERFORM set_config('lock_timeout', v_wait, true);
  EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    NULL;
  END;
END
$$;
