-- Compute the delay before the next attempt from the backoff of a message or of its topic.
-- Called by: messages.retry. Locks: nothing.
-- p_attempt is the attempt that just ended (1 = the first), p_random a number in [0, 1) for the jitter.
-- kind none: no wait; constant: base; linear: base + step per further attempt; exponential: base * factor ^ further
-- attempts. cap bounds the result (1 day unless set); jitter 'full' draws from [0, delay], a number j from delay * [1 -
-- j, 1 + j]. Full jitter: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
CREATE OR REPLACE FUNCTION messages.backoff_delay(p_policy jsonb, p_attempt integer, p_random double precision)
RETURNS interval
LANGUAGE plpgsql
IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
  v_base    double precision := extract(epoch FROM coalesce(p_policy ->> 'base', '1 s')::interval);
  v_step    double precision := extract(epoch FROM coalesce(p_policy ->> 'step', p_policy ->> 'base', '1 s')::interval);
  v_factor  double precision := coalesce((p_policy ->> 'factor')::double precision, 2);
  v_cap     double precision := extract(epoch FROM coalesce(p_policy ->> 'cap', '1 day')::interval);
  v_jitter  text             := coalesce(p_policy ->> 'jitter', '0');
  v_further integer          := greatest(p_attempt, 1) - 1;
  v_delay   double precision;
BEGIN
  v_delay := CASE p_policy ->> 'kind'
    WHEN 'constant'    THEN v_base
    WHEN 'linear'      THEN v_base + v_step * v_further
    -- 60 doublings are beyond any cap; more would overflow the float.
    WHEN 'exponential' THEN v_base * power(v_factor, least(v_further, 60))
    ELSE 0
  END;
  v_delay := least(v_delay, v_cap);
  v_delay := CASE v_jitter
    WHEN 'full' THEN v_delay * p_random
    ELSE v_delay * (1 + v_jitter::double precision * (2 * p_random - 1))
  END;
  RETURN make_interval(secs => v_delay);
END
$$;
