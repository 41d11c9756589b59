-- Cut an error to p_characters and keep its end, which has the exception of a traceback.
-- Called by: archive, append_attempt, dead_message, dead_groups, list_found. Locks: nothing. Result: the text; of a
-- longer one the end behind an ellipsis. If the end alone does not name the error (its message is long), the line that
-- does is put before it. The same rule in Python: pgrouse/values/error_line.py.
CREATE OR REPLACE FUNCTION messages.cut_error(p_error text, p_characters integer)
RETURNS text
LANGUAGE plpgsql
IMMUTABLE PARALLEL SAFE STRICT
AS $$
DECLARE
  v_line text;
  v_end  text;
BEGIN
  IF char_length(p_error) <= p_characters THEN
    RETURN p_error;
  END IF;
  v_line := messages.error_line(p_error);
  v_end := '...' || right(p_error, p_characters - 3);
  IF messages.error_line(v_end) = v_line THEN
    RETURN v_end;
  END IF;
  v_line := left(v_line, p_characters / 2);
  RETURN v_line || E'\n...\n' || right(p_error, p_characters - 5 - char_length(v_line));
END
$$;
