-- One row per topic, and one with topic NULL for all: how many messages ended, died, were tried again, how long
-- attempts ran, before and after the mark, and percentiles of the total time. Cancelled messages count in the cost
-- only. Empty if there is no comparison.
CREATE TABLE changes AS
WITH
  counted AS (
    SELECT
      topic,
      GROUPING(topic) AS is_all,
      count(*) FILTER (WHERE counts AND NOT is_after) AS ended_before,
      count(*) FILTER (WHERE counts AND is_after) AS ended_after,
      count(*) FILTER (WHERE is_dead AND NOT is_after) AS dead_before,
      count(*) FILTER (WHERE is_dead AND is_after) AS dead_after,
      coalesce(sum(greatest(attempts - 1, 0)) FILTER (WHERE NOT is_after), 0)::BIGINT AS retries_before,
      coalesce(sum(greatest(attempts - 1, 0)) FILTER (WHERE is_after), 0)::BIGINT AS retries_after
    FROM ended
    WHERE getvariable('is_compared')
    GROUP BY GROUPING SETS ((topic), ())
  ),
  ran AS (
    SELECT
      topic,
      coalesce(sum(elapsed(began_us, ended_us)) FILTER (WHERE NOT is_after), 0) / 1e6 AS run_before_s,
      coalesce(sum(elapsed(began_us, ended_us)) FILTER (WHERE is_after), 0) / 1e6 AS run_after_s
    FROM attempt
    GROUP BY GROUPING SETS ((topic), ())
  ),
  taken AS (
    SELECT
      topic,
      max(p50_s) FILTER (WHERE NOT is_after) AS total_p50_before_s,
      max(p50_s) FILTER (WHERE is_after) AS total_p50_after_s,
      max(p95_s) FILTER (WHERE NOT is_after) AS total_p95_before_s,
      max(p95_s) FILTER (WHERE is_after) AS total_p95_after_s,
      max(p99_s) FILTER (WHERE NOT is_after) AS total_p99_before_s,
      max(p99_s) FILTER (WHERE is_after) AS total_p99_after_s
    FROM percentile
    WHERE scope = 'side'
    GROUP BY topic
  )
SELECT
  c.* EXCLUDE (is_all),
  coalesce(r.run_before_s, 0) AS run_before_s,
  coalesce(r.run_after_s, 0) AS run_after_s,
  t.* EXCLUDE (topic)
FROM counted AS c
LEFT JOIN ran AS r ON r.topic IS NOT DISTINCT FROM c.topic
LEFT JOIN taken AS t ON t.topic IS NOT DISTINCT FROM c.topic
WHERE ended_before + ended_after > 0;
