-- One row per SLO and step: how many messages ended (cancelled ones do not count), and how many of them met the SLO.
CREATE TABLE slo AS
SELECT
  o.name AS slo,
  make_timestamptz(step_of(e.archived_us)) AS time,
  count(*) AS ended,
  count(*) FILTER (WHERE e.result = 'success' AND e.total_us <= o.within_us) AS good
FROM objective AS o
JOIN ended AS e ON o.topic IS NULL OR o.topic = e.topic
WHERE e.is_shown AND e.counts
GROUP BY ALL;
