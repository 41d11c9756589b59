-- Whether a text fits a pattern, in which * stands for any characters and nothing else has a meaning.
-- Called by: silenced_until, wants_alert. Locks: nothing. Result: a pattern of NULL fits everything.
CREATE OR REPLACE FUNCTION messages.matches(p_pattern text, p_text text)
RETURNS boolean
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
AS $$
  SELECT p_pattern IS NULL OR p_pattern = '*'
    OR coalesce(p_text LIKE replace(replace(replace(replace(p_pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%'), false)
$$;
