-- The number of messages that died with each fingerprint, by bucket.
CREATE TABLE fingerprint_trend AS
SELECT topic, fingerprint, make_timestamptz(bucket_of(archived_us)) AS time, count(*) AS messages
FROM ended
WHERE is_dead AND is_shown
GROUP BY ALL;
