-- Say what is wrong with the roles and topics of a token or of a user; NULL: nothing.
-- Called by: add_token, open_user_session. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.access_problem(p_roles text[], p_topics text[])
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT CASE
    WHEN cardinality(p_roles) IS NOT DISTINCT FROM 0
      OR (p_roles <@ ARRAY['viewer', 'publisher', 'worker', 'operator']) IS NOT TRUE THEN
      'roles are viewer, publisher, worker and operator'
    WHEN p_topics IS NULL OR cardinality(p_topics) NOT BETWEEN 1 AND 100 OR EXISTS (
      SELECT FROM unnest(p_topics) AS t (topic)
      WHERE (t.topic ~ '^([*]|([A-Za-z0-9][A-Za-z0-9._:-]*[.])?[*][*]|[A-Za-z0-9][A-Za-z0-9._:-]*[*]?)$'
        AND octet_length(t.topic) <= 200) IS NOT TRUE) THEN
      'topics are 1 to 100 names, patterns that end with .* or .**, or beginnings that end with *'
  END
$$;
