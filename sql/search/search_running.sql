-- Find the running messages of a search, by id.
-- Called by: find_messages. p_place: [id], where the previous page ended; NULL = from the beginning. Locks: nothing.
-- It reads the index of the locked rows, which are few. Bounded: p_limit matches, p_max_examined examined rows, half a
-- second.
CREATE OR REPLACE FUNCTION messages.search_running(
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
    SELECT m.id, m.created_at, messages.matches_live(p_search, m, messages.now()) AS is_wanted
    FROM messages.message AS m
    WHERE m.claim_id IS NOT NULL
      AND m.topic >= coalesce((p_search).topic, '') COLLATE "C"
      AND m.topic <= coalesce((p_search).topic, '~') COLLATE "C"
      AND m.id > coalesce((p_place ->> 0)::bigint, 0)
    ORDER BY m.id
  LOOP
    v_page.examined := v_page.examined + 1;
    v_page.reached := v_row.created_at;
    IF v_row.is_wanted THEN
      v_page.ids := v_page.ids || v_row.id;
      v_page.ended := v_page.ended || NULL::timestamptz;
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
