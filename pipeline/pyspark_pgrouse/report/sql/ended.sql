-- Each message that ended, with how it ended and how long that took: all other tables are made from this. It is the
-- only statement that reads the source.
--
-- counts: it was not cancelled. is_shown: in the window, and not only in its baseline. is_after: from the mark on.
-- wait_us and run_us are those of its last attempt; NULL if it was never claimed. total_us begins when it was first
-- due. The archive keeps the last available_at only, so the total of a message that was tried before begins with
-- created_at.
CREATE TABLE ended AS
WITH
  moments AS (
    SELECT
      *,
      micros(archived_at) AS archived_us,
      micros(locked_at) AS locked_us,
      micros(created_at) AS created_us,
      micros(available_at) AS available_us,
      history IS NOT NULL OR attempts > 1 AS was_tried_before,
      result NOT IN ('success', 'cancelled') AS is_dead
    FROM archive
  )
SELECT
  id,
  topic,
  channel,
  result,
  attempts,
  handled_by,
  history,
  archived_us,
  locked_us,
  is_dead,
  CASE WHEN is_dead THEN coalesce(error_fingerprint, result) END AS fingerprint,
  CASE WHEN is_dead THEN left(error, 2000) END AS error,
  result <> 'cancelled' AS counts,
  archived_us >= getvariable('since_us') AS is_shown,
  archived_us >= getvariable('mark_us') AS is_after,
  elapsed(available_us, locked_us) AS wait_us,
  elapsed(locked_us, archived_us) AS run_us,
  elapsed(CASE WHEN was_tried_before THEN created_us ELSE greatest(created_us, available_us) END,
    archived_us) AS total_us
FROM moments
WHERE archived_us >= getvariable('first_us') AND archived_us < getvariable('until_us');
