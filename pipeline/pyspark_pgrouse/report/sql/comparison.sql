-- The rows of changes, with what follows from them. pace: messages that ended in a second. busy: how many messages were
-- processed at once, on average.
--
-- is_sure: the failure rates differ by three standard errors or more, which is hardly chance. slower: the factor by
-- which the p50 or the p99 has grown; with fewer than 20 (p99: 500) messages on one side it means nothing.
-- more_dead: how many more died than at the earlier rate. busier: how much more was processed at once. weight: how much
-- a topic changed.
CREATE VIEW comparison AS
SELECT
  *,
  least(ended_before, ended_after) AS fewest,
  dead_before / nullif(ended_before, 0) AS rate_before,
  dead_after / nullif(ended_after, 0) AS rate_after,
  ended_before / nullif(getvariable('before_s'), 0) AS pace_before,
  ended_after / nullif(getvariable('after_s'), 0) AS pace_after,
  run_before_s / nullif(getvariable('before_s'), 0) AS busy_before,
  run_after_s / nullif(getvariable('after_s'), 0) AS busy_after,
  is_sure(dead_before, ended_before, dead_after, ended_after) AS is_sure,
  greatest(
    CASE WHEN fewest >= 20 THEN total_p50_after_s / nullif(total_p50_before_s, 0) END,
    CASE WHEN fewest >= 500 THEN total_p99_after_s / nullif(total_p99_before_s, 0) END
  ) AS slower,
  CASE WHEN is_sure THEN (rate_after - rate_before) * ended_after END AS more_dead,
  CASE WHEN fewest >= 20 AND busy_after > busy_before * 1.1 THEN busy_after - busy_before END AS busier,
  CASE WHEN fewest >= 20 THEN greatest(
    abs(ln(nullif(total_p50_after_s, 0) / nullif(total_p50_before_s, 0))),
    abs(ln(nullif(total_p99_after_s, 0) / nullif(total_p99_before_s, 0))),
    abs(rate_after - rate_before) * 10
  ) ELSE 0 END AS weight
FROM changes;
