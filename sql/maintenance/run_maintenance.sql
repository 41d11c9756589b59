-- Run one maintenance task by hand: expire_locks, expire_messages or purge. It is bounded, and recorded in messages.audit with its count;
-- the tick's own calls are not.
-- Called by: operators, the web server. Locks: what the reaper locks. Result: what it did, as the reaper itself.
CREATE OR REPLACE FUNCTION messages.run_maintenance(p_task text)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_count bigint;
BEGIN
  IF p_task IS NULL OR p_task NOT IN ('expire_locks', 'expire_messages', 'purge') THEN
    RAISE EXCEPTION 'reaper is %', coalesce('"' || p_task || '"', 'NULL') USING ERRCODE = '22023', HINT = 'use expire_locks, expire_messages or purge';
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
