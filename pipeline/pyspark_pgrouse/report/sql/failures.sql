-- One row per topic: the sums of throughput, and which share of its messages died; NULL if all were cancelled.
-- Cancelled messages do not count.
CREATE TABLE failures AS
WITH
  summed AS (
    SELECT
      topic,
      sum(ended)::BIGINT AS ended,
      sum(success)::BIGINT AS success,
      sum(rejected)::BIGINT AS rejected,
      sum(failed)::BIGINT AS failed,
      sum(lock_expired)::BIGINT AS lock_expired,
      sum(expired)::BIGINT AS expired,
      sum(cancelled)::BIGINT AS cancelled
    FROM throughput
    GROUP BY topic
  )
SELECT *, ended - success - cancelled AS dead,
       (ended - success - cancelled) / nullif(ended - cancelled, 0) AS failure_rate
FROM summed;
