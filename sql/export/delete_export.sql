-- Give up an export: the retention waits for it no longer.
-- Called by: pgrouse pipeline export --forget. Locks: the cursor's row. Result: whether there was one of this name.
CREATE OR REPLACE FUNCTION messages.forget_export(p_name text)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  DELETE FROM messages.export_cursor AS c WHERE c.name = p_name;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM messages.note_action('forget_export', NULL, p_name);
  RETURN true;
END
$$;
