-- What a traceback says at its end: the error itself, at most 200 characters.
-- Called by: the functions of explain. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.last_line(p_error text)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT left((regexp_match(rtrim(p_error, E' \t\r\n'), '[^\n]*$'))[1], 200)
$$;
