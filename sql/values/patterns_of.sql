-- Returns the patterns that match a topic, the most specific first: of `shop.orders.paid` these are `shop.orders.*`,
-- `shop.orders.**`, `shop.**` and `**`.
--
-- Arguments: `p_topic`: a topic; or a pattern: then the result is itself, and what matches all of its topics.
-- Result: none for a topic of dead letters, whose name ends with `.dlq`, and for `*`.
-- Errors: none.
-- Locks: none.
-- Called by: publishes while a worker sleeps that handles patterns, and whatever looks up a topic.
-- Inside: a topic of dead letters is found by its name alone, or the handler of a pattern would get what it failed to
-- process. Publishers call it, so every name is qualified.
CREATE OR REPLACE FUNCTION messages.patterns_of(p_topic text)
RETURNS text[]
LANGUAGE plpgsql
IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
  -- The levels before the last one, with their dots.
  v_begin text   := coalesce(pg_catalog."substring"(p_topic, '^.*[.]'), '');
  v_found text[] := CASE
    WHEN v_begin OPERATOR(pg_catalog.<>) '' AND pg_catalog."right"(p_topic, 2) OPERATOR(pg_catalog.<>) '**'
      THEN ARRAY[v_begin OPERATOR(pg_catalog.||) '*']
    ELSE '{}'
  END;
BEGIN
  IF pg_catalog."right"(p_topic, 4) OPERATOR(pg_catalog.=) '.dlq' OR p_topic OPERATOR(pg_catalog.=) '*' THEN
    RETURN '{}'::pg_catalog.text[];
  END IF;
  LOOP
    v_found := pg_catalog.array_append(v_found, v_begin OPERATOR(pg_catalog.||) '**');
    EXIT WHEN v_begin OPERATOR(pg_catalog.=) '';
    v_begin := coalesce(pg_catalog."substring"(v_begin, '^(.*[.])[^.]*[.]$'), '');
  END LOOP;
  RETURN v_found;
END
$$;
