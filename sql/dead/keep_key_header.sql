-- New headers of a message, with the one of the old that says by which key it is encrypted: nobody takes that away by hand.
-- Called by: edit, put_back. Locks: nothing. Result: NULL for NULL.
CREATE OR REPLACE FUNCTION messages.keep_mark(p_new jsonb, p_old jsonb)
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
