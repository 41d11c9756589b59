-- Which JSON Schema a topic's payloads must fit, as a digest of it.
-- Called by: publish clients, in the statement that publishes: what they checked the payload against counts only while this is its digest.
-- Locks: nothing. Result: NULL = there is none.
CREATE OR REPLACE FUNCTION messages.schema_digest(p_topic text)
RETURNS text
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  RETURN (
    SELECT md5(coalesce(t.payload_schema, d.payload_schema)::text)
    FROM messages.topic AS d
    LEFT JOIN messages.topic AS t ON t.topic = p_topic
    WHERE d.topic = '*');
END
$$;
