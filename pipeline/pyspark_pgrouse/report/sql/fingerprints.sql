-- One row per topic and fingerprint that is seen in the window: its messages with first_seen and last_seen, before and
-- after the mark, and the id, result and error of the newest as a sample. A message that died without an error has its
-- result as the fingerprint.
CREATE TABLE fingerprints AS
WITH
  grouped AS (
    SELECT
      topic,
      fingerprint,
      count(*) FILTER (WHERE is_shown) AS messages,
      count(*) FILTER (WHERE NOT is_after) AS before,
      count(*) FILTER (WHERE is_after) AS after,
      make_timestamptz(min(archived_us) FILTER (WHERE is_shown)) AS first_seen,
      make_timestamptz(max(archived_us)) AS last_seen,
      arg_max(struct_pack(id := id, result := result, error := error), (archived_us, id)) AS sample
    FROM ended
    WHERE is_dead
    GROUP BY topic, fingerprint
  )
SELECT * EXCLUDE (sample), sample.id AS sample_id, sample.result AS sample_result, sample.error AS sample_error
FROM grouped
WHERE messages > 0;
