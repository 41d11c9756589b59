-- Returns a digest of the topic's `payload_schema`, or NULL if it has none. The database does not check payloads
-- against a schema; clients do.
--
-- Errors: none.
-- Locks: none.
-- Called by: publish clients, in the statement that publishes: their check of the payload is valid only while this is
-- the schema's digest.
CREATE OR REPLACE FUNCTION messages.payload_schema_digest(p_topic text)
RETURNS text
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN (
    SELECT md5(coalesce(t.payload_schema, d.payload_schema)::text)
    FROM messages.inherited_policy AS d
    LEFT JOIN messages.topic AS t ON t.topic = p_topic
    WHERE d.topic = messages.inherits_from(p_topic));
END
$$;
