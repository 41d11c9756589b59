-- Find the dead messages of a search that were not redriven, the latest first.
-- Called by: find_messages. p_place: [archived_at, id], where the previous page ended; NULL = from the beginning.
-- Locks: nothing. It reads the index of the dead, topic by topic, and merges: first as many as the page wants, and more
-- at a time while few of them match. Bounded: as search_running.
CREATE OR REPLACE FUNCTION messages.search_dead(
  p_search messages.search, p_place jsonb, p_limit integer, p_max_examined bigint
)
RETURNS messages.search_page
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_topics text[]      := ARRAY(
    SELECT t.topic FROM messages.dead_topics() AS t (topic)
    WHERE (p_search).may IS NULL OR t.topic = ANY ((p_search).may) OR t.topic ~ ANY ((p_search).may_match));
  v_at     timestamptz := coalesce((p_place ->> 0)::timestamptz, 'infinity');
  v_id     bigint      := coalesce((p_place ->> 1)::bigint, 9223372036854775807);
  v_page messages.search_page;
  v_row    record;
  v_read   integer;
  v_chunk  integer := least(p_limit, 500);
BEGIN
  v_page := ('{}', '{}', 0, NULL, NULL);
  IF (p_search).topic IS NOT NULL THEN
    v_topics := ARRAY[(p_search).topic];
  END IF;
  LOOP
    v_read := 0;
    FOR v_row IN
      SELECT d.id, d.archived_at,
             messages.matches_search(p_search, d.topic, d.result, d.channel, d.key, d.error, d.error_fingerprint,
               d.payload, d.headers, d.handled_by, d.attempts, d.batch_id)
               AND (SELECT true FROM messages.redrive_log AS r WHERE r.archived_id = d.id LIMIT 1) IS NULL AS is_wanted
      FROM unnest(v_topics) AS t (topic)
      CROSS JOIN LATERAL (
        SELECT a.id, a.archived_at, a.topic, a.result, a.channel, a.key, a.error, a.error_fingerprint, a.payload,
               a.headers, a.handled_by, a.attempts, a.batch_id
        FROM messages.message_archive AS a
        WHERE a.result NOT IN ('success', 'cancelled') AND a.topic = t.topic COLLATE "C"
          AND a.archived_at >= coalesce((p_search).since, '-infinity')
          AND a.archived_at < coalesce((p_search).until, 'infinity')
          AND a.archived_at <= v_at AND (a.archived_at, a.id) < (v_at, v_id)
        ORDER BY a.archived_at DESC, a.id DESC
        LIMIT v_chunk
      ) AS d
      ORDER BY d.archived_at DESC, d.id DESC
      LIMIT v_chunk
    LOOP
      v_read := v_read + 1;
      v_page.examined := v_page.examined + 1;
      v_at := v_row.archived_at;
      v_id := v_row.id;
      IF v_row.is_wanted THEN
        v_page.ids := v_page.ids || v_row.id;
        v_page.ended := v_page.ended || v_row.archived_at;
      END IF;
      EXIT WHEN cardinality(v_page.ids) >= p_limit OR v_page.examined >= p_max_examined;
    END LOOP;
    v_page.reached := CASE WHEN v_page.examined > 0 THEN v_at END;
    IF cardinality(v_page.ids) >= p_limit OR v_page.examined >= p_max_examined
      OR (v_read = v_chunk AND clock_timestamp() > statement_timestamp() + interval '500 ms') THEN
      v_page.place := jsonb_build_array(v_at, v_id);
      EXIT;
    END IF;
    EXIT WHEN v_read < v_chunk;
    v_chunk := least(500, v_chunk * 4);
  END LOOP;
  RETURN v_page;
END
$$;
