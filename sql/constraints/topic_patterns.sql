-- The patterns among names of topics.
-- Called by: generated columns of sleeper and worker, claim_with_next_due, next_due, waiting_topics, resume. Locks:
-- nothing.
-- Result: those that end with *; NULL = there are none, which one look at all of them tells: lists may be long.
CREATE OR REPLACE FUNCTION messages.topic_patterns(p_topics text[])
RETURNS text[]
LANGUAGE plpgsql
IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
  IF pg_catalog.strpos(pg_catalog.array_to_string(p_topics, ''), '*') OPERATOR(pg_catalog.=) 0 THEN
    RETURN NULL;
  END IF;
  RETURN (
    SELECT pg_catalog.array_agg(t.topic)
    FROM pg_catalog.unnest(p_topics) AS t (topic)
    WHERE pg_catalog."right"(t.topic, 1) OPERATOR(pg_catalog.=) '*');
END
$$;
