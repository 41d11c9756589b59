-- The columns that a list of messages shows, in the order of the given ids.
-- Called by: find_messages. p_ended: when each of them ended, NULL = it has not. p_preview: so many characters of the payload. Locks:
-- nothing.
CREATE OR REPLACE FUNCTION messages.list_found(p_ids bigint[], p_ended timestamptz[], p_preview integer)
RETURNS SETOF messages.search_result
LANGUAGE sql
STABLE
AS $$
  SELECT f.*
  FROM unnest(p_ids, p_ended) WITH ORDINALITY AS w (id, ended, place)
  CROSS JOIN LATERAL (
    SELECT m.id, m.topic::text, m.channel::text, m.key::text, m.priority::smallint,
           CASE
             WHEN m.claim_id IS NOT NULL THEN 'running'
             WHEN m.available_at <= messages.now() THEN 'ready'
             WHEN m.history -> -1 ->> 'outcome' IN ('failed', 'lock_expired') THEN 'retrying'
             ELSE 'delayed'
           END,
           m.attempts::integer, m.redrives, m.created_at::timestamptz, m.available_at::timestamptz, m.locked_by, m.locked_at,
           m.lock_expires_at::timestamptz, NULL::timestamptz, messages.cut_error(m.history -> -1 ->> 'error', 2000), NULL,
           messages.payload_preview(m.payload, m.body, p_preview), NULL::bigint, NULL::jsonb
    FROM messages.message AS m
    WHERE m.id = w.id AND w.ended IS NULL
    UNION ALL
    SELECT a.id, a.topic, a.channel, a.key, a.priority, a.result, a.attempts, a.redrives, a.created_at, a.available_at, a.handled_by, a.locked_at,
           NULL, a.archived_at, messages.cut_error(a.error, 2000), a.error_fingerprint, messages.payload_preview(a.payload, a.body, p_preview), NULL, NULL
    FROM messages.message_archive AS a
    WHERE a.id = w.id AND a.archived_at = w.ended
  ) AS f
  ORDER BY w.place
$$;
