-- The line of an error that names it.
-- Called by: error_fingerprint, short_error_line, cut_error. Locks: nothing. Result: one line, uncut; NULL for no
-- error. In a Python traceback that is the first line behind its last frame that is not indented: what follows (DETAIL
-- of a database, fields of a validation, notes) belongs to the message. The lines drawn by an ExceptionGroup are
-- removed first, so that its last member counts. In any other text it is the first line, as in traces of Java,
-- JavaScript and Go. Of a very long text it reads both ends. The same rule in Python: pgrouse/values/error_line.py.
CREATE OR REPLACE FUNCTION messages.error_line(p_error text)
RETURNS text
LANGUAGE plpgsql
IMMUTABLE PARALLEL SAFE STRICT
AS $$
DECLARE
  v_text text := btrim(
    CASE WHEN char_length(p_error) <= 8192 THEN p_error ELSE left(p_error, 4096) || right(p_error, 4096) END, E' \n\r\t'
  );
  v_line text;
BEGIN
  IF strpos(v_text, ' Exception Group Traceback ') > 0 THEN
    v_text := regexp_replace(regexp_replace(v_text, E'^ *\\| ', '', 'gn'), E'^ *\\+[-+ 0-9]*$\\n?', '', 'gn');
  END IF;
  -- Greedy: everything before the last frame.
  v_line := (regexp_match(v_text, E'^.*(?:^|\\n)  File "[^\\n]*(?:\\n[ \\t][^\\n]*)*\\n([^\\n]+)'))[1];
  IF v_line IS NULL THEN
    v_line := (regexp_match(v_text, E'^(?:Traceback[^\\n]*\\n(?:[ \\t][^\\n]*\\n)*)?([^\\n]*)'))[1];
  END IF;
  RETURN v_line;
END
$$;
