-- Percentiles by bucket and topic, in seconds; topic NULL = all topics, time NULL = the whole window.
CREATE TABLE latency AS
SELECT
  make_timestamptz(bucket_us) AS time,
  topic,
  max(messages) AS messages,
  max(p50_s) FILTER (WHERE measure = 'wait') AS wait_p50_s,
  max(p95_s) FILTER (WHERE measure = 'wait') AS wait_p95_s,
  max(p99_s) FILTER (WHERE measure = 'wait') AS wait_p99_s,
  max(p50_s) FILTER (WHERE measure = 'run') AS run_p50_s,
  max(p95_s) FILTER (WHERE measure = 'run') AS run_p95_s,
  max(p99_s) FILTER (WHERE measure = 'run') AS run_p99_s,
  max(p50_s) FILTER (WHERE measure = 'total') AS total_p50_s,
  max(p95_s) FILTER (WHERE measure = 'total') AS total_p95_s,
  max(p99_s) FILTER (WHERE measure = 'total') AS total_p99_s
FROM percentile
WHERE scope = 'shown'
GROUP BY bucket_us, topic;
