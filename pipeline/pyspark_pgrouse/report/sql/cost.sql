-- One row per topic: the cost of its messages. run_s is the time of all attempts, failed_run_s the time of attempts
-- that did not succeed.
CREATE TABLE cost AS
WITH
  ran AS (
    SELECT
      topic,
      sum(elapsed(began_us, ended_us)) / 1e6 AS run_s,
      coalesce(sum(elapsed(began_us, ended_us)) FILTER (WHERE NOT is_success), 0) / 1e6 AS failed_run_s
    FROM attempt
    WHERE is_shown
    GROUP BY topic
  ),
  counted AS (
    SELECT topic, count(*) AS messages, sum(greatest(attempts - 1, 0))::BIGINT AS retries
    FROM ended
    WHERE is_shown
    GROUP BY topic
  )
SELECT topic, messages, retries, coalesce(run_s, 0) AS run_s, coalesce(failed_run_s, 0) AS failed_run_s
FROM counted
LEFT JOIN ran USING (topic);
