-- Returns whether a text matches a pattern in which * stands for any characters and nothing else is special.
-- Called by: silence_of, wants_alert. Locks: nothing. Result: a pattern of NULL matches everything.
CREATE OR REPLACE FUNCTION messages.matches_glob(p_pattern text, p_text text)
RETURNS boolean
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
AS $$
  SELECT p_pattern IS NULL OR p_pattern = '*'
    OR coalesce(
      p_text LIKE replace(replace(replace(replace(p_pattern, E'\\', E'\\\\'), '%', E'\\%'), '_', E'\\_'), '*', '%'),
      false)
$$;
