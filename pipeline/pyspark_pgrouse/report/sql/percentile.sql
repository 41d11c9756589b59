-- Percentiles 50, 95 and 99 of the times wait, run and total, in seconds, for each part of the messages that another
-- table shows: scope 'shown': the window, by bucket and topic (NULL = all of them); 'side': before and after the mark;
-- 'week': each whole week.
--
-- Times are counted by value, so that a sort has at most a few thousand rows for each part, and both the counting and
-- the sort can go to the disk.
CREATE TABLE time_count AS
WITH
  times AS (
    SELECT
      topic,
      CASE WHEN is_shown THEN bucket_of(archived_us) END AS bucket_us,
      week_of(archived_us) AS week_us,
      is_after,
      unnest([{'measure': 'wait', 'us': wait_us}, {'measure': 'run', 'us': run_us},
              {'measure': 'total', 'us': total_us}], recursive := true)
    FROM ended
    WHERE counts
  )
SELECT topic, bucket_us, week_us, is_after, measure, three_digits(us) AS us, count(*) AS n
FROM times
WHERE us IS NOT NULL AND (bucket_us IS NOT NULL OR measure = 'total')
GROUP BY ALL;

CREATE TABLE percentile AS
WITH
  summed AS (
    SELECT 'shown' AS scope, bucket_us, NULL AS week_us, NULL AS is_after, topic, measure, us, sum(n) AS n
    FROM time_count
    WHERE bucket_us IS NOT NULL
    GROUP BY GROUPING SETS ((bucket_us, topic, measure, us), (bucket_us, measure, us), (topic, measure, us),
                            (measure, us))
    UNION ALL
    SELECT 'side', NULL, NULL, is_after, topic, measure, us, sum(n)
    FROM time_count
    WHERE measure = 'total' AND getvariable('is_compared')
    GROUP BY GROUPING SETS ((is_after, topic, measure, us), (is_after, measure, us))
    UNION ALL
    SELECT 'week', NULL, week_us, NULL, topic, measure, us, sum(n)
    FROM time_count
    WHERE measure = 'total' AND week_us IS NOT NULL
    GROUP BY GROUPING SETS ((week_us, topic, measure, us), (week_us, measure, us))
  ),
  ranked AS (
    SELECT
      *,
      sum(n) OVER (PARTITION BY scope, bucket_us, week_us, is_after, topic, measure ORDER BY us) AS rank,
      sum(n) OVER (PARTITION BY scope, bucket_us, week_us, is_after, topic, measure) AS messages
    FROM summed
  )
SELECT
  scope,
  bucket_us,
  week_us,
  is_after,
  topic,
  measure,
  max(messages)::BIGINT AS messages,
  min(us) FILTER (WHERE rank * 100 >= messages * 50) / 1e6 AS p50_s,
  min(us) FILTER (WHERE rank * 100 >= messages * 95) / 1e6 AS p95_s,
  min(us) FILTER (WHERE rank * 100 >= messages * 99) / 1e6 AS p99_s
FROM ranked
GROUP BY ALL;
