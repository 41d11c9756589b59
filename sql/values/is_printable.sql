-- Returns whether a name of a channel, key, step, job or worker has only visible characters: no control characters, and
-- no characters that change the direction of text, join characters or have no width (Unicode's categories Cc, Cf, Zl
-- and Zp, and its default ignorable characters, which include variation selectors and fillers). Such characters can
-- make two different names look the same. Publishing refuses them with 23514, as a violation of
-- `message_channel_is_short_and_printable` or `message_key_is_short_and_printable`, functions with 22023.
--
-- Errors: none.
-- Locks: none.
-- Called by: whatever takes names of channels, keys, steps, jobs and workers; the domains channel_name and key_name
-- have the same pattern.
-- Inside: It sets no search_path, so that it can be inlined. NULL for NULL.
CREATE OR REPLACE FUNCTION messages.is_printable(p_name text)
RETURNS boolean
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT p_name OPERATOR(pg_catalog.!~)
    E'[\\u0001-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890-\\u0891\\u08e2'
    '\\u115f-\\u1160\\u17b4-\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164'
    '\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\U000110bd\\U000110cd\\U00013430-\\U0001343f'
    '\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff]'
$$;
