-- Find the waiting messages of a search, topic by topic.
-- Called by: find_messages. p_place: [topic, the place within it]; NULL = from the beginning. Locks: nothing. Bounded:
-- as search_running.
CREATE OR REPLACE FUNCTION messages.search_waiting(
  p_search messages.search, p_place jsonb, p_limit integer, p_max_examined bigint
)
RETURNS messages.search_page
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_topic  text  := coalesce(p_place ->> 0, (p_search).topic, messages.next_topic(NULL, '', false));
  v_place  jsonb := nullif(p_place -> 1, 'null');
  v_part   messages.search_page;
  v_page messages.search_page;
BEGIN
  v_page := ('{}', '{}', 0, NULL, NULL);
  WHILE v_topic IS NOT NULL LOOP
    IF (p_search).may IS NULL OR v_topic = ANY ((p_search).may) OR v_topic ~ ANY ((p_search).may_match) THEN
      v_part := messages.search_topic(
        p_search, v_topic, v_place, p_limit - cardinality(v_page.ids), p_max_examined - v_page.examined);
      v_page.ids := v_page.ids || v_part.ids;
      v_page.ended := v_page.ended || v_part.ended;
      v_page.examined := v_page.examined + v_part.examined;
      v_page.reached := coalesce(v_part.reached, v_page.reached);
      IF v_part.place IS NOT NULL THEN
        v_page.place := jsonb_build_array(v_topic, v_part.place);
        RETURN v_page;
      END IF;
    END IF;
    v_topic := CASE WHEN (p_search).topic IS NULL THEN messages.next_topic(NULL, v_topic, false) END;
    v_place := NULL;
    -- Many topics may have nothing that fits.
    IF v_topic IS NOT NULL AND clock_timestamp() > statement_timestamp() + interval '500 ms' THEN
      v_page.place := jsonb_build_array(v_topic, NULL);
      RETURN v_page;
    END IF;
  END LOOP;
  RETURN v_page;
END
$$;
