-- Returns the regular expressions by which `~ ANY` finds topics: those of patterns, and of beginnings that end with
-- `*`.
--
-- Arguments: `p_patterns`: as of `messages.topic_matches`. Names are left out: compare them.
-- Result: one for each that ends with a star; what can be no name matches nothing.
-- Errors: none.
-- Locks: none.
-- Called by: topic_matches, list_topics, stats, and lists of what a token may see.
-- Inside: a session keeps 32 compiled regular expressions. With one for each of hundreds of names, each would be
-- compiled again for each topic.
CREATE OR REPLACE FUNCTION messages.topic_regexps(p_patterns text[])
RETURNS text[]
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
AS $$
  SELECT ARRAY(
    SELECT CASE
             WHEN p.pattern !~ '^([A-Za-z0-9._:-]*[*]|([A-Za-z0-9._:-]*[.])?[*][*])$' THEN '(?!x)x'
             WHEN p.pattern ~ '(^|[.])[*][*]$' THEN '^(?!.*[.]dlq$|[*]$)' || n.name || '.*$'
             -- A list may have patterns too: of these it matches only itself.
             WHEN p.pattern ~ '[.][*]$' THEN '^(?!.*[.]dlq$)' || n.name || '(?:[^.*]*|[*])$'
             ELSE '^' || n.name
           END
    FROM unnest(p_patterns) AS p (pattern)
    CROSS JOIN LATERAL (SELECT replace(rtrim(p.pattern, '*'), '.', '[.]') AS name) AS n
    WHERE right(p.pattern, 1) = '*')
$$;
