-- One row per topic and number of attempts: how many messages ended with it, and how many of them are dead. 0 attempts:
-- it ended before it was claimed.
CREATE TABLE retries AS
SELECT topic, attempts, count(*) AS messages, count(*) FILTER (WHERE is_dead) AS dead
FROM ended
WHERE is_shown
GROUP BY ALL;
