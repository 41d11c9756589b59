-- The same number for errors that differ only in numbers, ids and quoted strings, so that dead messages can be grouped.
-- Called by: messages.archive for results that are dead. Locks: nothing. Result: 16 hex digits, NULL for no error.
-- Only the last line is read: of a traceback that is the exception.
CREATE OR REPLACE FUNCTION messages.fingerprint(p_error text)
RETURNS text
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
AS $$
  SELECT left(md5(
    regexp_replace(
      regexp_replace(
        regexp_replace(
          lower(substring(rtrim(left(p_error, 8192), E' \n\r\t') FROM '[^\n]*$')),
          '''[^'']*''|"[^"]*"', '?', 'g'),
        '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|0x[0-9a-f]+|\m[0-9a-f]*[0-9][0-9a-f]{7,}\M', '#', 'g'),
      '[0-9]+', '#', 'g')), 16)
$$;
