-- The patterns by which LIKE ANY finds topics: of names, and of beginnings that end with *.
-- Called by: list_topics, stats. Locks: nothing. Result: a pattern for each; a backslash, _ and % in a name stand for
-- themselves.
CREATE OR REPLACE FUNCTION messages.like_patterns(p_topics text[])
RETURNS text[]
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
AS $$
  SELECT ARRAY(
    SELECT replace(
      replace(replace(rtrim(t.topic, '*'), E'\\', E'\\\\'), '_', E'\\_'), '%', E'\\%'
    ) || CASE WHEN right(t.topic, 1) = '*' THEN '%' ELSE '' END
    FROM unnest(p_topics) AS t (topic))
$$;
