-- Raises an error for a text that cannot be the name of an event.
-- Called by: signal, signal_key, wait_for_event, sign_signal. Errors: 22023. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.check_event_name(p_name text)
RETURNS void
LANGUAGE plpgsql
IMMUTABLE
AS $$
BEGIN
  IF p_name IS NULL OR NOT messages.is_printable(p_name) OR length(p_name) NOT BETWEEN 1 AND 180 THEN
    RAISE EXCEPTION 'name of an event is %', coalesce('"' || left(p_name, 250) || '"', 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 to 180 printable characters';
  END IF;
END
$$;
