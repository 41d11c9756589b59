-- Reserves an export for one session, until the session ends or unlocks the export. It needs its own connection, not
-- one from a pooler.
--
-- Result: whether the session has the export; false = another session works on it. A session that already has it gets
-- true.
-- Errors: 22004 without a name.
-- Locks: the row of `messages.lease`, for which it waits at most a second.
-- Repeat: safe.
-- Called by: `pgrouse pipeline export`, before it reads the cursor.
CREATE OR REPLACE FUNCTION messages.lock_export(p_name text)
RETURNS boolean
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT messages.take_lease('export', p_name)
$$;
