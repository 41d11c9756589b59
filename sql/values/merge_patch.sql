-- Apply a JSON merge patch (RFC 7396): objects are merged key by key, null removes a key, anything else replaces.
-- Called by: redrive_rows, and itself. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.merge_patch(p_target jsonb, p_patch jsonb)
RETURNS jsonb
LANGUAGE plpgsql
IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
  v_result jsonb := CASE WHEN jsonb_typeof(p_target) = 'object' THEN p_target ELSE '{}' END;
  v_each   record;
BEGIN
  IF p_patch IS NULL OR jsonb_typeof(p_patch) <> 'object' THEN
    RETURN p_patch;
  END IF;
  FOR v_each IN SELECT e.key, e.value FROM jsonb_each(p_patch) AS e LOOP
    v_result := CASE
      WHEN v_each.value = 'null' THEN v_result - v_each.key
      ELSE v_result || jsonb_build_object(v_each.key, messages.merge_patch(v_result -> v_each.key, v_each.value))
    END;
  END LOOP;
  RETURN v_result;
END
$$;
