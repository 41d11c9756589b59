-- Refuse what is no name of a worker: 1 to 300 characters, all of which can be seen, and not '*', which is the sleeper of the listeners outside.
-- Called by: claim, arm, worker_started. Locks: nothing. 300: a configured name has up to 200, and daemons put more behind it.
CREATE OR REPLACE FUNCTION messages.check_worker(p_worker text)
RETURNS void
LANGUAGE plpgsql
IMMUTABLE
AS $$
BEGIN
  IF messages.is_printable(p_worker) AND length(p_worker) BETWEEN 1 AND 300 AND p_worker <> '*' THEN
    RETURN;
  END IF;
  RAISE EXCEPTION 'name of a worker is %', coalesce('"' || left(p_worker, 300) || '"', 'NULL')
    USING ERRCODE = '22023', HINT = 'use 1 to 300 printable characters, and not *';
END
$$;
