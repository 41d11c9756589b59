-- The new headers of a message, with the old header that names its encryption key: an operator cannot remove it.
-- Called by: edit, redrive_rows. Locks: nothing. Result: NULL for NULL.
CREATE OR REPLACE FUNCTION messages.keep_key_header(p_new jsonb, p_old jsonb)
RETURNS jsonb
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE
    WHEN p_old ? 'pgrouse-encrypted-by'
      THEN p_new || jsonb_build_object('pgrouse-encrypted-by', p_old -> 'pgrouse-encrypted-by')
    ELSE p_new
  END
$$;
