-- One row per SLO and week, as in weeks: how many messages ended, and how many of them met the SLO.
CREATE TABLE slo_weeks AS
SELECT
  o.name AS slo,
  make_timestamptz(week_of(e.archived_us)) AS week,
  count(*) AS ended,
  count(*) FILTER (WHERE e.result = 'success' AND e.total_us <= o.within_us) AS good
FROM objective AS o
JOIN ended AS e ON o.topic IS NULL OR o.topic = e.topic
WHERE e.counts AND week_of(e.archived_us) IS NOT NULL
GROUP BY ALL;
