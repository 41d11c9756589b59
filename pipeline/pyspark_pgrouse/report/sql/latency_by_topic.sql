-- Percentiles by topic over the whole window, in seconds.
CREATE TABLE latency_by_topic AS
SELECT * EXCLUDE (time)
FROM latency
WHERE time IS NULL AND topic IS NOT NULL;
