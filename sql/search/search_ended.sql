-- Find the ended messages of a search, the latest published first.
-- Called by: find_messages. p_place: [id], where the previous page ended; NULL = from the beginning. Locks: nothing.
-- It goes down the ids of the archive, only in the days that the search names; no other index can be used. Bounded: as
-- search_running.
CREATE OR REPLACE FUNCTION messages.search_ended(
  p_search messages.search, p_place jsonb, p_limit integer, p_max_examined bigint
)
RETURNS messages.search_page
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_page messages.search_page;
  v_row    record;
BEGIN
  v_page := ('{}', '{}', 0, NULL, NULL);
  FOR v_row IN
    SELECT a.id, a.archived_at, a.created_at,
           messages.matches_search(p_search, a.topic, a.result, a.channel, a.key, a.error, a.error_fingerprint,
             a.payload,
                                   a.headers, a.handled_by, a.attempts, a.batch_id) AS is_wanted
    FROM messages.message_archive AS a
    WHERE a.id < coalesce((p_place ->> 0)::bigint, 9223372036854775807)
      AND a.archived_at >= coalesce((p_search).since, '-infinity')
      AND a.archived_at < coalesce((p_search).until, 'infinity')
    ORDER BY a.id DESC
    LIMIT p_max_examined
  LOOP
    v_page.examined := v_page.examined + 1;
    v_page.reached := v_row.created_at;
    IF v_row.is_wanted THEN
      v_page.ids := v_page.ids || v_row.id;
      v_page.ended := v_page.ended || v_row.archived_at;
    END IF;
    IF cardinality(v_page.ids) >= p_limit OR v_page.examined >= p_max_examined
      OR clock_timestamp() > statement_timestamp() + interval '500 ms' THEN
      v_page.place := jsonb_build_array(v_row.id);
      EXIT;
    END IF;
  END LOOP;
  RETURN v_page;
END
$$;
