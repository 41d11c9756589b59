-- Report ended attempts to the breakers.
-- Called by: apply_end_policies and retry, only if a topic of them may use such a policy. p_topics: one entry for each
-- attempt.
-- Locks: nothing that others wait for: it adds rows, and the session that gets the breaker's row without waiting counts
-- them (update_breaker).
-- Result: how many attempts belong to a topic with a breaker.
CREATE OR REPLACE FUNCTION messages.count_breaker_attempts(p_topics text[], p_succeeded boolean)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_counted record;
  v_all     bigint := 0;
BEGIN
  FOR v_counted IN
    SELECT a.topic, a.attempts, coalesce(t.breaker, d.breaker) AS policy
    FROM (SELECT u.topic, count(*) AS attempts FROM unnest(p_topics) AS u (topic) GROUP BY u.topic) AS a
    JOIN messages.inherited_policy AS d ON d.topic = messages.inherits_from(a.topic)
    LEFT JOIN messages.topic AS t ON t.topic = a.topic
    WHERE coalesce(t.breaker, d.breaker) IS NOT NULL
  LOOP
    INSERT INTO messages.breaker_count (topic, succeeded, failed)
    SELECT v_counted.topic, CASE WHEN p_succeeded THEN v_counted.attempts ELSE 0 END,
           CASE WHEN p_succeeded THEN 0 ELSE v_counted.attempts END;
    PERFORM messages.update_breaker(v_counted.topic, v_counted.policy);
    v_all := v_all + v_counted.attempts;
  END LOOP;
  RETURN v_all;
END
$$;
