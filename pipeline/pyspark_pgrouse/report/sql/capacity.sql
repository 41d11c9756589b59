-- One row per worker (NULL = unknown) and bucket in which it held something: busy is the mean number of messages that
-- it held at once. By Little's law that is the time they were held in the bucket, divided by its width. Time outside
-- the window is cut off.
--
-- A message gives at most three rows, however long it was held: its part of the first bucket, one more from the next
-- bucket on, one less and its part of the last. Their sum over time is the level, and buckets between two rows have the
-- level of the former.
CREATE TABLE capacity AS
WITH
  clipped AS (
    SELECT
      worker,
      greatest(began_us, getvariable('since_us')) AS began_us,
      least(ended_us, getvariable('until_us')) AS ended_us
    FROM attempt
    WHERE is_shown
  ),
  held AS (
    SELECT *, bucket_of(began_us) AS first_us, bucket_of(ended_us) AS last_us
    FROM clipped
    WHERE ended_us > began_us
  ),
  changed AS (
    SELECT worker, first_us AS at_us, least(ended_us, first_us + getvariable('bucket_us')) - began_us AS part_us,
           0 AS more
    FROM held
    UNION ALL
    SELECT worker, first_us + getvariable('bucket_us'), 0, 1
    FROM held
    WHERE last_us > first_us
    UNION ALL
    SELECT worker, last_us, ended_us - last_us, -1
    FROM held
    WHERE last_us > first_us
  ),
  summed AS (
    SELECT worker, at_us, sum(part_us) AS part_us, sum(more) AS more
    FROM changed
    GROUP BY worker, at_us
  ),
  levels AS (
    SELECT
      worker,
      at_us,
      part_us,
      sum(more) OVER (PARTITION BY worker ORDER BY at_us) AS level,
      coalesce(lead(at_us) OVER (PARTITION BY worker ORDER BY at_us), at_us + getvariable('bucket_us')) AS next_us
    FROM summed
  ),
  filled AS (
    SELECT worker, at_us AS begun_us, part_us, level, unnest(range(at_us, next_us, getvariable('bucket_us'))) AS at_us
    FROM levels
  )
SELECT
  worker,
  make_timestamptz(at_us) AS time,
  level::DOUBLE + CASE WHEN at_us = begun_us THEN part_us ELSE 0 END / getvariable('bucket_us') AS busy
FROM filled
WHERE busy > 0;
