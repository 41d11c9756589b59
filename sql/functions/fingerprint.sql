-- The same number for errors that differ only in numbers, ids and quoted strings, so that dead messages can be grouped.
-- Called by: messages.archive for results that are dead. Locks: nothing. Result: 16 hex digits, NULL for no error.
-- What counts is the line that names the error. In a Python traceback that is the first line behind its last frame that is not indented:
-- what follows (DETAIL of a database, fields of a validation, notes) belongs to the message. The rules of an ExceptionGroup are taken
-- off first, so that its last member counts. In any other text it is the first line, as in traces of Java, JavaScript and Go.
CREATE OR REPLACE FUNCTION messages.fingerprint(p_error text)
RETURNS text
LANGUAGE plpgsql
IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
  v_text text := btrim(left(p_error, 8192), E' \n\r\t');
  v_line text;
BEGIN
  IF strpos(v_text, ' Exception Group Traceback ') > 0 THEN
    v_text := regexp_replace(regexp_replace(v_text, '^ *\| ', '', 'gn'), '^ *\+[-+ 0-9]*$\n?', '', 'gn');
  END IF;
  -- Greedy: whatever stands before the last frame.
  v_line := (regexp_match(v_text, '^.*(?:^|\n)  File "[^\n]*(?:\n[ \t][^\n]*)*\n([^\n]+)'))[1];
  IF v_line IS NULL THEN
    v_line := (regexp_match(v_text, '^(?:Traceback[^\n]*\n(?:[ \t][^\n]*\n)*)?([^\n]*)'))[1];
  END IF;

  v_line := lower(left(v_line, 1000));
  -- What expire_locks says names the worker, and no two are called alike.
  v_line := regexp_replace(v_line, '^lock_expired: .* held it from .*$', 'lock_expired');
  -- One kind of quotes after the other, never as alternatives: those would be greedy. An apostrophe within a word is no quote.
  v_line := regexp_replace(v_line, '(?<!\w)''.*?''(?!\w)', '?', 'g');
  v_line := regexp_replace(v_line, '(?<!\w)".*?"(?!\w)', '?', 'g');
  v_line := regexp_replace(v_line, '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|0x[0-9a-f]+', '#', 'g');
  v_line := regexp_replace(v_line, '\m(?=[a-f]*[0-9])[0-9a-f]{8,}\M|\m(?=[a-z_]*[0-9])\w{16,}\M', '#', 'g');
  v_line := regexp_replace(v_line, '[0-9]+', '#', 'g');
  RETURN left(md5(v_line), 16);
END
$$;
