-- Find out when the last of the dead messages of a group was redriven, if all of them were. It looks at all only if the
-- latest one was redriven. Groups of no topic, or of more than 10,000 messages, are not looked at: pages ask each
-- second.
-- Called by: incidents, hold_explained. Locks: nothing. Result: NULL = some were not redriven, or that is not known.
CREATE OR REPLACE FUNCTION messages.redriven_at(
  p_topic text, p_result text, p_error_fingerprint text, p_first_at timestamptz, p_latest bigint
)
RETURNS timestamptz
LANGUAGE sql
STABLE
AS $$
  SELECT CASE WHEN count(*) <= 10000 AND bool_and(r.at IS NOT NULL) THEN max(r.at) END
  FROM (
    SELECT a.id FROM messages.message_archive AS a
    -- A message is archived at the begin of its transaction, and its alert is raised at the end.
    WHERE a.result NOT IN ('success', 'cancelled') AND a.topic = p_topic COLLATE "C"
      AND a.archived_at >= p_first_at - interval '10 minutes'
      AND (p_result IS NULL OR a.result = p_result)
      AND (p_error_fingerprint IS NULL OR a.error_fingerprint = p_error_fingerprint)
      AND (SELECT true FROM messages.redrive_log AS l WHERE l.archived_id = p_latest LIMIT 1)
    LIMIT 10001) AS d
  LEFT JOIN LATERAL (SELECT l.redriven_at AS at FROM messages.redrive_log AS l WHERE l.archived_id = d.id OFFSET 0) AS r
    ON true
$$;
