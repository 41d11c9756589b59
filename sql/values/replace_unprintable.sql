-- Replace each character of a name that is not printable by a question mark (messages.is_printable has the same
-- pattern).
-- Called by: redrive_rows, replay: the table of the archive has no domain that refuses such characters in a channel,
-- that of live messages has.
-- Locks: nothing. NULL for NULL.
CREATE OR REPLACE FUNCTION messages.replace_unprintable(p_name text)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT pg_catalog.regexp_replace(
    p_name,
    E'[\\u0001-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890-\\u0891\\u08e2'
    '\\u115f-\\u1160\\u17b4-\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164'
    '\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\U000110bd\\U000110cd\\U00013430-\\U0001343f'
    '\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff]', '?', 'g'
  )
$$;
