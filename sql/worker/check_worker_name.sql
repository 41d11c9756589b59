-- Refuse what is no name of a worker: 1 to 300 characters, all of which can be seen, and not '*', which is the sleeper of the listeners outside.
-- Called by: claim, arm, worker_started, which refuse NULL in their own ways. Locks: nothing. 300: a configured name has up to 200, and daemons put more behind it.
CREATE OR REPLACE FUNCTION messages.check_worker(p_worker text)
RETURNS void
LANGUAGE plpgsql
IMMUTABLE
AS $$
BEGIN
  IF p_worker IS NULL OR messages.is_printable(p_worker) AND length(p_worker) BETWEEN 1 AND 300 AND p_worker <> '*' THEN
    RETURN;
  END IF;
  RAISE EXCEPTION 'name of a worker is %', '"' || left(p_worker, 300) || '"'
    USING ERRCODE = '22023', HINT = 'use 1 to 300 printable characters, and not *';
END
$$;
