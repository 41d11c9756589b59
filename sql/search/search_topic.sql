-- Find the waiting messages of a search in one topic, in the order of claims: those without a channel, then channel by
-- channel.
-- Called by: search_waiting. p_place: [channel, priority, available_at, id], where the previous page ended; NULL = from
-- the beginning. Each part is one range of a ready index; of those without a channel the ready and the later ones are
-- separate ranges, so that a million ready ones do not come before the delayed. Locks: nothing. Bounded: as
-- search_running.
CREATE OR REPLACE FUNCTION messages.search_topic(
  p_search messages.search, p_topic text, p_place jsonb, p_limit integer, p_max_examined bigint
)
RETURNS messages.search_page
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_now      timestamptz := messages.now();
  v_page   messages.search_page;
  v_row      record;
  v_channel  text        := p_place ->> 0;
  v_priority smallint    := coalesce((p_place ->> 1)::smallint, -1);
  v_at       timestamptz := coalesce((p_place ->> 2)::timestamptz, '-infinity');
  v_id       bigint      := coalesce((p_place ->> 3)::bigint, 0);
  v_from     timestamptz := CASE WHEN 'ready' <> ALL ((p_search).states) THEN v_now ELSE '-infinity' END;
  -- The last of all texts in the order of bytes. A literal would have to fit the encoding of the database.
  v_last_channel text    := CASE
    WHEN getdatabaseencoding() LIKE 'EUC%' THEN convert_from(E'\\xfefe', getdatabaseencoding())
    ELSE chr(CASE getdatabaseencoding() WHEN 'UTF8' THEN 1114111 ELSE 255 END) END;
  v_to       timestamptz := CASE
    WHEN NOT (p_search).states && ARRAY['delayed', 'blocked', 'retrying', 'waiting'] THEN v_now ELSE 'infinity' END;
BEGIN
  v_page := ('{}', '{}', 0, NULL, NULL);
  IF p_place IS NULL AND (p_search).key IS NOT NULL THEN
    -- The one that was never tried is found by its key; the walk passes over it.
    SELECT m.id, messages.matches_live(p_search, m, v_now) AS is_wanted
    INTO v_row
    FROM messages.message AS m
    WHERE m.topic = p_topic AND m.key = (p_search).key AND m.attempts = 0 AND m.claim_id IS NULL;
    IF v_row.is_wanted THEN
      v_page.ids := ARRAY[v_row.id];
      v_page.ended := ARRAY[NULL::timestamptz];
      v_page.examined := 1;
    END IF;
    IF cardinality(v_page.ids) >= p_limit THEN
      v_page.place := jsonb_build_array(NULL, -1, '-infinity', 0);
      RETURN v_page;
    END IF;
  END IF;

  IF v_priority < 0 THEN
    SELECT n.priority INTO v_priority FROM messages.next_priority(p_topic, (-1)::smallint, false) AS n;
  END IF;
  WHILE v_channel IS NULL AND (p_search).channel IS NULL AND v_priority IS NOT NULL LOOP
    FOR v_row IN
      SELECT m.id, m.available_at, m.created_at,
             messages.matches_live(p_search, m, v_now)
             AND ((p_search).key IS NULL OR m.attempts > 0) AS is_wanted
      FROM messages.message AS m
      WHERE m.topic = p_topic AND m.priority = v_priority AND m.claim_id IS NULL AND m.channel IS NULL
        AND (m.available_at, m.id) > (v_at, v_id) AND m.available_at >= v_from AND m.available_at <= v_to
      ORDER BY m.available_at, m.id
      LIMIT p_max_examined
    LOOP
      v_page.examined := v_page.examined + 1;
      v_page.reached := v_row.created_at;
      IF v_row.is_wanted THEN
        v_page.ids := v_page.ids || v_row.id;
        v_page.ended := v_page.ended || NULL::timestamptz;
      END IF;
      IF cardinality(v_page.ids) >= p_limit OR v_page.examined >= p_max_examined
        OR clock_timestamp() > statement_timestamp() + interval '500 ms' THEN
        v_page.place := jsonb_build_array(NULL, v_priority, v_row.available_at, v_row.id);
        RETURN v_page;
      END IF;
    END LOOP;
    v_at := '-infinity';
    v_id := 0;
    SELECT n.priority INTO v_priority FROM messages.next_priority(p_topic, v_priority, false) AS n;
  END LOOP;

  FOR v_row IN
    SELECT m.id, m.channel::text AS channel, m.priority::smallint AS priority, m.available_at, m.created_at,
           messages.matches_live(p_search, m, v_now)
           AND ((p_search).key IS NULL OR m.attempts > 0) AS is_wanted
    FROM messages.message AS m
    WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL
      AND m.channel >= coalesce((p_search).channel, '') COLLATE "C"
      AND m.channel <= coalesce((p_search).channel, v_last_channel) COLLATE "C"
      AND (m.channel, m.priority, m.available_at, m.id)
        > (
          coalesce(v_channel, '') COLLATE "C", coalesce(v_priority, -1),
          CASE WHEN v_channel IS NULL THEN '-infinity' ELSE v_at END, CASE WHEN v_channel IS NULL THEN 0 ELSE v_id END)
    ORDER BY m.channel, m.priority, m.available_at, m.id
    LIMIT p_max_examined
  LOOP
    v_page.examined := v_page.examined + 1;
    v_page.reached := v_row.created_at;
    IF v_row.is_wanted THEN
      v_page.ids := v_page.ids || v_row.id;
      v_page.ended := v_page.ended || NULL::timestamptz;
    END IF;
    IF cardinality(v_page.ids) >= p_limit OR v_page.examined >= p_max_examined
      OR clock_timestamp() > statement_timestamp() + interval '500 ms' THEN
      v_page.place := jsonb_build_array(v_row.channel, v_row.priority, v_row.available_at, v_row.id);
      RETURN v_page;
    END IF;
  END LOOP;
  RETURN v_page;
END
$$;
