-- A JSON value as an array: as it is if it is one, else as its only element.
-- Called by: publish, upsert. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.as_array(p_value jsonb)
RETURNS jsonb
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT CASE WHEN jsonb_typeof(p_value) = 'array' THEN p_value ELSE jsonb_build_array(p_value) END
$$;
