-- Every attempt: the last one of each message, and the earlier ones as far as the history has them. is_success: the
-- message ended with it, in success.
CREATE TABLE earlier_attempt AS
WITH
  listed AS (
    SELECT
      topic,
      archived_us,
      is_shown,
      is_after,
      unnest(from_json(
        CASE WHEN json_valid(history) THEN history END,
        '[{"worker": "VARCHAR", "started": "VARCHAR", "ended": "VARCHAR"}]'
      )) AS attempt
    FROM ended
    WHERE history IS NOT NULL
  )
SELECT
  topic,
  archived_us,
  is_shown,
  is_after,
  attempt.worker AS worker,
  micros(try_cast(attempt.started AS TIMESTAMPTZ)) AS began_us,
  micros(try_cast(attempt.ended AS TIMESTAMPTZ)) AS ended_us
FROM listed;

CREATE VIEW attempt AS
SELECT topic, archived_us, is_shown, is_after, handled_by AS worker, locked_us AS began_us,
       archived_us AS ended_us, result = 'success' AS is_success
FROM ended
WHERE locked_us IS NOT NULL
UNION ALL
SELECT topic, archived_us, is_shown, is_after, worker, began_us, ended_us, false
FROM earlier_attempt
WHERE began_us IS NOT NULL AND ended_us IS NOT NULL;
