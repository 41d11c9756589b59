-- Wrap a JSON value in an array, unless it is one already.
-- Called by: publish, insert_or_merge. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.jsonb_to_array(p_value jsonb)
RETURNS jsonb
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT CASE WHEN jsonb_typeof(p_value) = 'array' THEN p_value ELSE jsonb_build_array(p_value) END
$$;
