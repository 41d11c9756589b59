-- One row per topic (NULL = all) and week: messages, dead ones, retries, time of all attempts, percentiles of the total
-- time. Weeks are counted back from the end of the window, through the baseline too; a first week that is not read as a
-- whole is left out.
CREATE TABLE weeks AS
WITH
  counted AS (
    SELECT
      topic,
      week_of(archived_us) AS week_us,
      count(*) AS ended,
      count(*) FILTER (WHERE NOT counts) AS cancelled,
      count(*) FILTER (WHERE is_dead) AS dead,
      sum(greatest(attempts - 1, 0))::BIGINT AS retries
    FROM ended
    WHERE week_of(archived_us) IS NOT NULL
    GROUP BY GROUPING SETS ((topic, week_of(archived_us)), (week_of(archived_us)))
  ),
  ran AS (
    SELECT topic, week_of(archived_us) AS week_us, sum(elapsed(began_us, ended_us)) / 1e6 AS run_s
    FROM attempt
    WHERE week_of(archived_us) IS NOT NULL
    GROUP BY GROUPING SETS ((topic, week_of(archived_us)), (week_of(archived_us)))
  ),
  taken AS (
    SELECT topic, week_us, p50_s AS total_p50_s, p95_s AS total_p95_s, p99_s AS total_p99_s
    FROM percentile
    WHERE scope = 'week'
  )
SELECT
  c.topic,
  make_timestamptz(c.week_us) AS week,
  c.ended,
  c.cancelled,
  c.dead,
  c.dead / nullif(c.ended - c.cancelled, 0) AS failure_rate,
  c.retries,
  coalesce(r.run_s, 0) AS run_s,
  t.total_p50_s,
  t.total_p95_s,
  t.total_p99_s
FROM counted AS c
LEFT JOIN ran AS r ON r.topic IS NOT DISTINCT FROM c.topic AND r.week_us = c.week_us
LEFT JOIN taken AS t ON t.topic IS NOT DISTINCT FROM c.topic AND t.week_us = c.week_us;
