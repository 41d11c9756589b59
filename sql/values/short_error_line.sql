-- The line of an error that names it, at most 200 characters.
-- Called by: the functions of explain. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.short_error_line(p_error text)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT left(messages.error_line(p_error), 200)
$$;
