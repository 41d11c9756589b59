-- The beginning of a payload for a list, or only its size if it is large: cutting it would require writing it all out first.
-- Of one that is large only its size: to cut it, all of it would have to be written out first.
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
