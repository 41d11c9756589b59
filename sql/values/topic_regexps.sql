-- The regular expressions by which ~ ANY finds topics: of names, patterns, and beginnings that end with * (see
-- topic_matches).
-- Called by: topic_matches, list_topics, stats, and lists of what a token may see. Locks: nothing. Result: one for
-- each; what can be no name matches nothing.
CREATE OR REPLACE FUNCTION messages.topic_regexps(p_patterns text[])
RETURNS text[]
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
AS $$
  SELECT ARRAY(
    SELECT CASE
             WHEN p.pattern !~ '^[A-Za-z0-9._:-]*[*]{0,2}$' THEN '(?!x)x'
             WHEN p.pattern ~ '(^|[.])[*][*]$' THEN '^(?!.*[.]dlq$|[*]$)' || n.name || '.*$'
             -- A list may have patterns too: of these it matches only itself.
             WHEN p.pattern ~ '[.][*]$' THEN '^(?!.*[.]dlq$)' || n.name || '(?:[^.*]*|[*])$'
             WHEN p.pattern ~ '[*]$' THEN '^' || n.name
             ELSE '^' || n.name || '$'
           END
    FROM unnest(p_patterns) AS p (pattern)
    CROSS JOIN LATERAL (SELECT replace(rtrim(p.pattern, '*'), '.', '[.]') AS name) AS n)
$$;
