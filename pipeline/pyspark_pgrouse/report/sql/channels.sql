-- One row per topic and channel: how many messages ended, and how long they ran in all. Messages without a channel are
-- left out.
CREATE TABLE channels AS
SELECT topic, channel, count(*) AS messages, coalesce(sum(run_us), 0) / 1e6 AS run_s
FROM ended
WHERE is_shown AND channel IS NOT NULL
GROUP BY ALL;
