-- Returns messages that match all filters (NULL = any), page by page: running messages, by id; waiting messages, topic
-- by topic in the order in which they are claimed; ended messages, the latest published first. If only dead messages
-- are requested, those that died latest come first, and those that were redriven are left out.
--
-- Arguments: `p_states`: those of `messages.live_state`, and results. `p_error`: a text that the last error contains,
-- ignoring case. `p_path`: a jsonpath that must match in the payload; with `p_value`, a match must equal that value (a
-- string, a number, true, false or null). `p_since`, `p_until`: for ended messages, when they ended; for the others,
-- when they were published. `p_topics`: names, patterns, and beginnings of names that end with `*`, one of which the
-- topic has to match. `p_preview`: how many characters of each payload to return. `p_after`: `place` of the previous
-- page, with the same filters. `p_headers`: an object that the headers contain. `p_worker`: the worker that runs the
-- message, or ended it, or one of its claim loops (`w/0` for `w`) did; of messages that wait, none is known.
-- `p_attempts`: the minimum number of attempts. `p_batch_id`: the batch in which the message counts.
-- Result: one row per message, `messages.search_result`; then always one row whose `id` is NULL: how many messages were
-- examined, the time of the last of them (`created_at`), and `place`: `p_after` of the next page, NULL = there are no
-- more pages.
-- Errors: 22023 for an invalid state, path, value, place, bound, number of attempts, or headers that are no object.
-- Locks: none.
-- Cost: for every query at most `p_limit` messages returned, `p_max_examined` messages examined, half a second; it
-- never counts. Indexes serve topic, channel and waiting states; the key of a message that was never tried, with its
-- topic; running messages; dead messages by topic. For everything else it scans: a page may be short or empty even
-- though the next page still contains matches.
-- Called by: the dashboard, GET /v1/messages.
CREATE OR REPLACE FUNCTION messages.find_messages(
  p_topic       text        DEFAULT NULL,
  p_states      text[]      DEFAULT NULL,
  p_channel     text        DEFAULT NULL,
  p_key         text        DEFAULT NULL,
  p_error       text        DEFAULT NULL,
  p_fingerprint text        DEFAULT NULL,
  p_path        text        DEFAULT NULL,
  p_value       jsonb       DEFAULT NULL,
  p_since       timestamptz DEFAULT NULL,
  p_until       timestamptz DEFAULT NULL,
  p_topics      text[]      DEFAULT NULL,
  p_limit       integer     DEFAULT 50,
  p_after       jsonb       DEFAULT NULL,
  p_max_examined bigint          DEFAULT 20000,
  p_preview     integer     DEFAULT 0,
  p_headers     jsonb       DEFAULT NULL,
  p_worker      text        DEFAULT NULL,
  p_attempts    integer     DEFAULT NULL,
  p_batch_id    bigint      DEFAULT NULL
)
RETURNS SETOF messages.search_result
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_live   text[] := ARRAY['ready', 'delayed', 'blocked', 'retrying', 'waiting', 'running'];
  v_dead   text[] := ARRAY['rejected', 'failed', 'lock_expired', 'expired'];
  v_steps  text[] := CASE
    WHEN p_states IS NULL THEN ARRAY['running', 'waiting', 'ended']
    ELSE array_remove(ARRAY[
      CASE WHEN 'running' = ANY (p_states) THEN 'running' END,
      CASE WHEN p_states && v_live[1:5] THEN 'waiting' END,
      CASE WHEN p_states && v_dead AND NOT p_states && ARRAY['success', 'cancelled'] THEN 'dead'
           WHEN p_states && ARRAY['success', 'cancelled'] THEN 'ended' END], NULL)
  END;
  v_unknown text := (
    SELECT s.state FROM unnest(p_states) AS s (state)
    WHERE s.state <> ALL (v_live || v_dead || ARRAY['success', 'cancelled']) LIMIT 1);
  v_search messages.search;
  v_step   text;
  v_place  jsonb := p_after;
  v_page   messages.search_page;
  v_ids    bigint[] := ARRAY[]::bigint[];
  v_ended  timestamptz[] := ARRAY[]::timestamptz[];
  v_end    messages.search_result;
BEGIN
  IF v_unknown IS NOT NULL THEN
    RAISE EXCEPTION 'state of a search is "%"', v_unknown
      USING ERRCODE = '22023',
        HINT = 'use ready, delayed, blocked, retrying, waiting, running, success, rejected, failed, lock_expired, '
          'expired or cancelled';
  END IF;
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'limit of a search is %', coalesce(p_limit::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 to 10000';
  END IF;
  IF p_max_examined IS NULL OR p_max_examined NOT BETWEEN 1 AND 1000000 THEN
    RAISE EXCEPTION 'max_examined of a search is %', coalesce(p_max_examined::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 to 1000000';
  END IF;
  IF p_attempts < 0 THEN
    RAISE EXCEPTION 'attempts of a search is %', p_attempts USING ERRCODE = '22023', HINT = 'use 0 or more';
  END IF;
  IF jsonb_typeof(p_headers) <> 'object' THEN
    RAISE EXCEPTION 'headers of a search are a JSON %', jsonb_typeof(p_headers)
      USING ERRCODE = '22023', HINT = 'use an object, like {"tenant": "acme"}';
  END IF;
  IF p_preview IS NULL OR p_preview NOT BETWEEN 0 AND 10000 THEN
    RAISE EXCEPTION 'preview of a search is %', coalesce(p_preview::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use 0 to 10000 characters';
  END IF;
  IF jsonb_typeof(p_value) IN ('object', 'array') OR (p_value IS NOT NULL AND p_path IS NULL) THEN
    RAISE EXCEPTION 'value of a search is a JSON %', jsonb_typeof(p_value)
      USING ERRCODE = '22023', HINT = 'use a string, a number, true, false or null, together with a path';
  END IF;
  IF p_after IS NOT NULL AND (jsonb_typeof(p_after) <> 'array' OR p_after ->> 0 <> ALL (v_steps)) THEN
    RAISE EXCEPTION 'place of a search is %', left(p_after::text, 100)
      USING ERRCODE = '22023', HINT = 'use the place of the page before, with the same filters';
  END IF;
  v_search := (
    p_topic, p_topics, messages.topic_regexps(p_topics), p_states, p_channel, p_key, p_error, p_fingerprint, NULL,
    jsonb_build_object('value', p_value), p_headers, p_worker, p_attempts,
    -- Nothing of a batch ends before the batch was created.
    greatest(p_since, (SELECT b.created_at FROM messages.batch AS b WHERE b.id = p_batch_id)), p_until, p_batch_id);
  BEGIN
    v_search.path := (p_path || CASE WHEN p_value IS NULL THEN '' ELSE ' ? (@ == $value)' END)::jsonpath;
  EXCEPTION WHEN syntax_error OR data_exception THEN
    RAISE EXCEPTION 'path of a search is "%": %', left(p_path, 200), SQLERRM
      USING ERRCODE = '22023', HINT = 'use a jsonpath, like $.customer.id or $.items[*].sku';
  END;

  v_end.examined := 0;
  FOREACH v_step IN ARRAY v_steps LOOP
    CONTINUE WHEN v_place IS NOT NULL AND v_place ->> 0 <> v_step;
    IF cardinality(v_ids) >= p_limit OR v_end.examined >= p_max_examined
      OR clock_timestamp() > statement_timestamp() + interval '500 ms' THEN
      v_end.place := jsonb_build_array(v_step);
      EXIT;
    END IF;
    v_page := CASE v_step
      WHEN 'running' THEN messages.search_running(
        v_search, nullif(v_place -> 1, 'null'), p_limit - cardinality(v_ids), p_max_examined - v_end.examined)
      WHEN 'waiting' THEN messages.search_waiting(
        v_search, nullif(v_place -> 1, 'null'), p_limit - cardinality(v_ids), p_max_examined - v_end.examined)
      WHEN 'dead'    THEN messages.search_dead(
        v_search, nullif(v_place -> 1, 'null'), p_limit - cardinality(v_ids), p_max_examined - v_end.examined)
      ELSE messages.search_ended(
        v_search, nullif(v_place -> 1, 'null'), p_limit - cardinality(v_ids), p_max_examined - v_end.examined)
    END;
    v_ids := v_ids || v_page.ids;
    v_ended := v_ended || v_page.ended;
    v_end.examined := v_end.examined + v_page.examined;
    v_end.created_at := coalesce(v_page.reached, v_end.created_at);
    IF v_page.place IS NOT NULL THEN
      v_end.place := jsonb_build_array(v_step, v_page.place);
      EXIT;
    END IF;
    v_place := NULL;
  END LOOP;
  RETURN QUERY SELECT f.* FROM messages.list_found(v_ids, v_ended, p_preview) AS f;
  RETURN NEXT v_end;
END
$$;

-- The columns that a list of messages shows, in the order of the given ids.
-- Called by: find_messages. p_ended: when each of them ended, NULL = it has not. p_preview: the maximum number of
-- characters of the payload. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.list_found(p_ids bigint[], p_ended timestamptz[], p_preview integer)
RETURNS SETOF messages.search_result
LANGUAGE sql
STABLE
AS $$
  SELECT f.*
  FROM unnest(p_ids, p_ended) WITH ORDINALITY AS w (id, ended, place)
  CROSS JOIN LATERAL (
    SELECT m.id, m.topic::text, m.channel::text, m.key::text, m.priority::smallint,
           messages.live_state(m.id, m.topic, m.channel, m.claim_id, m.available_at, m.history, messages.now()),
           m.attempts::integer, m.redrives, m.created_at::timestamptz, m.available_at::timestamptz, m.locked_by,
           m.locked_at,
           m.lock_expires_at::timestamptz, NULL::timestamptz, messages.cut_error(m.history -> -1 ->> 'error', 2000),
           NULL,
           messages.payload_preview(m.payload, m.body, p_preview), NULL::bigint, NULL::jsonb
    FROM messages.message AS m
    WHERE m.id = w.id AND w.ended IS NULL
    UNION ALL
    SELECT a.id, a.topic, a.channel, a.key, a.priority, a.result, a.attempts, a.redrives, a.created_at, a.available_at,
           a.handled_by, a.locked_at,
           NULL, a.archived_at, messages.cut_error(a.error, 2000), a.error_fingerprint,
           messages.payload_preview(a.payload, a.body, p_preview), NULL, NULL
    FROM messages.message_archive AS a
    WHERE a.id = w.id AND a.archived_at = w.ended
  ) AS f
  ORDER BY w.place
$$;

-- Return the beginning of a payload for a list, or only its size if it is large: cutting it would require writing it
-- all out first.
-- Called by: list_found. p_chars 0 = no preview. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.payload_preview(p_payload jsonb, p_body bytea, p_chars integer)
RETURNS text
LANGUAGE sql
STABLE
AS $$
  SELECT CASE
    WHEN p_chars = 0 THEN NULL
    WHEN p_body IS NOT NULL THEN format('%s bytes', octet_length(p_body))
    WHEN p_payload IS NULL THEN NULL
    WHEN pg_column_size(p_payload) > 16384 THEN format('JSON of about %s kB', pg_column_size(p_payload) / 1024)
    ELSE left(messages.display_json(p_payload), p_chars)
  END
$$;
