-- Announces that a worker is about to sleep, and that it will look without a notification after `p_look_in`. From the
-- commit on, publishes that are due earlier notify it. The flag is valid for twice that time.
--
-- Arguments: `p_topics`: the topics whose publishes should notify the worker, and [patterns](#patterns-of-topics) of
-- them; NULL = all. `p_look_in`: at most 2 hours; a worker that sleeps longer calls `arm` again.
-- Errors: 23502 if the worker is NULL. 22023 for an invalid name of a worker (`messages.check_worker_name`), and if
-- `p_look_in` is not between 0 and 2 hours.
-- Locks: the worker's own row, and, for a moment, the row `armed` of `messages.mutex`. It is written with
-- `synchronous_commit = off`.
-- Repeat: replaces the flag.
-- Called by: workers whose claim found nothing, in a transaction of its own: only what is committed counts.
-- Inside: The caller need not wait for the flush (synchronous_commit = off): after a crash, workers arm again anyway.
CREATE OR REPLACE FUNCTION messages.arm(p_worker text, p_topics text[], p_look_in interval)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_until timestamptz := clock_timestamp() + 2 * p_look_in;
BEGIN
  PERFORM messages.check_worker_name(p_worker);
  -- Without a bound a flag would stand without end: each publish would look at it, and notify for it.
  IF p_look_in IS NULL OR p_look_in NOT BETWEEN '0' AND '2 hours' THEN
    RAISE EXCEPTION 'look_in of worker % is %', p_worker, coalesce(p_look_in::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use an interval from 0 to 2 hours';
  END IF;
  INSERT INTO messages.sleeper AS s (worker, topics, armed_until, next_look_at)
  VALUES (p_worker, p_topics, v_until, clock_timestamp() + p_look_in)
  ON CONFLICT (worker) DO UPDATE
  SET topics = excluded.topics, armed_until = excluded.armed_until, next_look_at = excluded.next_look_at;
  PERFORM messages.raise_armed_until(v_until);
END
$$;
