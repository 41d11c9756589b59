-- Returns the dead messages that match all filters, the oldest first, page by page. NULL = any.
--
-- Arguments: `p_since` and `p_until`: when they died. `p_error`: a text that their error contains, ignoring case.
-- `p_after`: the last id of the previous page. `p_redriven`: include messages that were redriven since.
-- Errors: 22023 for a limit below 0, and for a `p_after` that is not in the archive.
-- Locks: none.
-- Cost: it reads only dead messages, by their index, and for each topic no further than the page needs.
-- Called by: redrive_where, `pgrouse redrive`.
-- Inside: In the order of the index, since a bitmap, or a sort, would read all of them first.
CREATE OR REPLACE FUNCTION messages.find_dead(
  p_topic       text        DEFAULT NULL,
  p_result      text        DEFAULT NULL,
  p_fingerprint text        DEFAULT NULL,
  p_since       timestamptz DEFAULT NULL,
  p_until       timestamptz DEFAULT NULL,
  p_error       text        DEFAULT NULL,
  p_limit       integer     DEFAULT 1000,
  p_after       bigint      DEFAULT NULL,
  p_redriven    boolean     DEFAULT false
)
RETURNS TABLE (id bigint, topic text, result text, error_fingerprint text, archived_at timestamptz)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_since timestamptz := coalesce(p_since, '-infinity');
  v_until timestamptz := coalesce(p_until, 'infinity');
  v_after bigint      := 0;
BEGIN
  IF p_limit IS NULL OR p_limit < 0 THEN
    RAISE EXCEPTION 'limit of dead messages is %', coalesce(p_limit::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use a number from 0';
  END IF;
  IF p_after IS NOT NULL THEN
    SELECT greatest(a.archived_at, v_since), a.id INTO v_since, v_after FROM messages.message_archive AS a
    WHERE a.id = p_after;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'message % of the page before is not in the archive', p_after
        USING ERRCODE = '22023', HINT = 'begin again without p_after';
    END IF;
  END IF;

  RETURN QUERY
  SELECT d.id, d.topic, d.result, d.error_fingerprint, d.archived_at
  FROM (
    SELECT p_topic WHERE p_topic IS NOT NULL
    UNION ALL
    SELECT t.topic FROM messages.dead_topics() AS t (topic) WHERE p_topic IS NULL
  ) AS t (topic)
  CROSS JOIN LATERAL (
    SELECT a.id, a.topic, a.result, a.error_fingerprint, a.archived_at
    FROM messages.message_archive AS a
    WHERE a.result NOT IN ('success', 'cancelled')
      AND a.topic = t.topic COLLATE "C"
      AND a.archived_at >= v_since AND (a.archived_at, a.id) > (v_since, v_after) AND a.archived_at < v_until
      AND (p_result IS NULL OR a.result = p_result)
      AND (p_fingerprint IS NULL OR a.error_fingerprint = p_fingerprint)
      AND (p_error IS NULL OR strpos(lower(a.error COLLATE "C"), lower(p_error COLLATE "C")) > 0)
      AND (p_redriven OR (SELECT true FROM messages.redrive_log AS r WHERE r.archived_id = a.id LIMIT 1) IS NULL)
    ORDER BY a.archived_at, a.id
    LIMIT p_limit
  ) AS d
  ORDER BY d.archived_at, d.id
  LIMIT p_limit;
END
$$;
