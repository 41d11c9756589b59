-- The same hash for errors that differ only in numbers, ids, quoted strings, addresses, paths and values of name=value,
-- to group dead messages.
-- Called by: messages.archive for results that are dead. Locks: nothing. Result: 16 hex digits, NULL for no error.
-- It hashes the line that names the error: see error_line. In any locale it is the same.
CREATE OR REPLACE FUNCTION messages.error_fingerprint(p_error text)
RETURNS text
LANGUAGE plpgsql
IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
  v_line text COLLATE "C" := lower(left(messages.error_line(p_error), 1000) COLLATE "C");
BEGIN
  -- The text of expire_locks names the worker, and no two have the same name.
  v_line := regexp_replace(v_line, '^lock_expired: .* held it from .*$', 'lock_expired');
  -- One kind of quotes after the other, never as alternatives: those would be greedy. An apostrophe within a word is no
  -- quote.
  v_line := regexp_replace(v_line, E'(?<!\\w)''.*?''(?!\\w)', '?', 'g');
  v_line := regexp_replace(v_line, E'(?<!\\w)".*?"(?!\\w)', '?', 'g');
  -- The place of an error is not its kind: an address, a mailbox, a host, a path, and what is assigned to a name.
  v_line := regexp_replace(v_line, E'\\m[a-z][a-z0-9+.-]*://[^\\s<>]*[^\\s<>.,;:)\\]]', '<url>', 'g');
  v_line := regexp_replace(v_line, E'[\\w.+-]+@[\\w-]+(\\.[\\w-]+)+', '<mail>', 'g');
  v_line := regexp_replace(
    v_line, E'\\m([\\w-]+\\.)+(com|org|net|io|dev|app|cloud|internal|local|svc|example|test)\\M', '<host>', 'g');
  v_line := regexp_replace(v_line, E'(?<![\\w.>/])~?(/[\\w.@+~-]+){2,}/?', '<path>', 'g');
  v_line := regexp_replace(v_line, E'(?<=\\w=)[^\\s,;()&=]+', '?', 'g');
  v_line := regexp_replace(
    v_line, '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|0x[0-9a-f]+', '#', 'g');
  v_line := regexp_replace(v_line, E'\\m(?=[a-f]*[0-9])[0-9a-f]{8,}\\M|\\m(?=[a-z_]*[0-9])\\w{16,}\\M', '#', 'g');
  v_line := regexp_replace(v_line, '[0-9]+', '#', 'g');
  RETURN left(md5(v_line), 16);
END
$$;
