-- One reaper by hand: expire_locks, expire_ttl or purge, each bounded, and noted in messages.audit with what it did; the tick's own calls are not.
-- Called by: operators, the web server. Locks: what the reaper locks. Result: what it did, as the reaper itself.
CREATE OR REPLACE FUNCTION messages.reap(p_task text)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  v_did bigint;
BEGIN
  IF p_task IS NULL OR p_task NOT IN ('expire_locks', 'expire_ttl', 'purge') THEN
    RAISE EXCEPTION 'reaper is %', coalesce('"' || p_task || '"', 'NULL') USING ERRCODE = '22023', HINT = 'use expire_locks, expire_ttl or purge';
  END IF;
  v_did := CASE p_task
    WHEN 'expire_locks' THEN messages.expire_locks()
    WHEN 'expire_ttl'   THEN messages.expire_ttl()
    WHEN 'purge'        THEN messages.purge()
  END;
  PERFORM messages.note_action(p_task, NULL, NULL, jsonb_build_object('did', v_did));
  RETURN v_did;
END
$$;
