-- Release an export that this session has locked.
-- Called by: pgrouse pipeline export, at its end. Locks: as release_lease. Result: whether the session had it.
CREATE OR REPLACE FUNCTION messages.unlock_export(p_name text)
RETURNS boolean
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT messages.release_lease('export', p_name)
$$;
