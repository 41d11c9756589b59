-- Find the topics in which more messages died in an hour than their dead_per_hour, without those that were redriven. It
-- counts by steps of ten minutes, up to ten minutes more than an hour, and silenced ones too: it may list too many.
-- Called by: conditions, open_conditions. Locks: nothing. Result: the topics with their threshold.
CREATE OR REPLACE FUNCTION messages.dead_rates()
RETURNS TABLE (topic text, threshold integer)
LANGUAGE sql
STABLE
AS $$
  SELECT d.topic, d.threshold
  FROM (
    SELECT c.topic, sum(c.count - c.redriven) AS count, coalesce(min(own.dead_per_hour), b.dead_per_hour) AS threshold
    FROM messages.dead_count AS c
    JOIN messages.alert_threshold AS b ON b.topic = '*'
    LEFT JOIN messages.alert_threshold AS own ON own.topic = c.topic
    WHERE c.died_at > messages.now() - interval '70 minutes'
    GROUP BY c.topic, b.dead_per_hour) AS d
  WHERE d.threshold > 0 AND d.count > d.threshold
$$;
