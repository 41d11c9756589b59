-- Refuses an invalid name of a worker. A valid name has 1 to 300 printable characters (`messages.is_printable`).
--
-- Errors: 22023.
-- Locks: none.
-- Called by: claim, arm, register_worker, which refuse NULL themselves.
-- Inside: 300: a configured name has up to 200, and daemons append a suffix.
CREATE OR REPLACE FUNCTION messages.check_worker_name(p_worker text)
RETURNS void
LANGUAGE plpgsql
IMMUTABLE
AS $$
BEGIN
  IF p_worker IS NULL OR messages.is_printable(p_worker) AND length(p_worker) BETWEEN 1 AND 300 THEN
    RETURN;
  END IF;
  RAISE EXCEPTION 'name of a worker is %', '"' || left(p_worker, 300) || '"'
    USING ERRCODE = '22023', HINT = 'use 1 to 300 printable characters';
END
$$;
