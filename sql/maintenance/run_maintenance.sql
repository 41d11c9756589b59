-- Runs one maintenance task by hand, and records it in `messages.audit`.
--
-- Arguments: `p_task`: `expire_locks`, `expire_messages` or `purge`.
-- Result: what it did, as for the function of that name.
-- Errors: 22023 for another task.
-- Locks: as for that function.
-- Called by: operators, the web server.
CREATE OR REPLACE FUNCTION messages.run_maintenance(p_task text)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_count bigint;
BEGIN
  IF p_task IS NULL OR p_task NOT IN ('expire_locks', 'expire_messages', 'purge') THEN
    RAISE EXCEPTION 'reaper is %', coalesce('"' || p_task || '"', 'NULL')
      USING ERRCODE = '22023', HINT = 'use expire_locks, expire_messages or purge';
  END IF;
  v_count := CASE p_task
    WHEN 'expire_locks' THEN messages.expire_locks()
    WHEN 'expire_messages'   THEN messages.expire_messages()
    WHEN 'purge'        THEN messages.purge()
  END;
  PERFORM messages.audit_action(p_task, NULL, NULL, jsonb_build_object('count', v_count));
  RETURN v_count;
END
$$;
