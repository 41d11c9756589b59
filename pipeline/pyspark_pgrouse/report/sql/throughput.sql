-- One row per topic and step in which something ended: how many messages, and how many with each result.
CREATE TABLE throughput AS
SELECT
  topic,
  make_timestamptz(step_of(archived_us)) AS time,
  count(*) AS ended,
  count(*) FILTER (WHERE result = 'success') AS success,
  count(*) FILTER (WHERE result = 'rejected') AS rejected,
  count(*) FILTER (WHERE result = 'failed') AS failed,
  count(*) FILTER (WHERE result = 'lock_expired') AS lock_expired,
  count(*) FILTER (WHERE result = 'expired') AS expired,
  count(*) FILTER (WHERE result = 'cancelled') AS cancelled
FROM ended
WHERE is_shown
GROUP BY ALL;
