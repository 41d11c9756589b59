-- Deletes an export: nothing waits for it any longer.
--
-- Result: whether there was one.
-- Errors: none.
-- Locks: the row of the cursor.
-- Repeat: safe.
-- Called by: `pgrouse pipeline export --forget`.
CREATE OR REPLACE FUNCTION messages.delete_export(p_name text)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  DELETE FROM messages.export_cursor AS c WHERE c.name = p_name;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM messages.audit_action('delete_export', NULL, p_name);
  RETURN true;
END
$$;
