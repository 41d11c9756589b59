-- Give an export back that this session has locked.
-- Called by: pgrouse pipeline export, at its end. Locks: as free_lease. Result: whether the session had it.
CREATE OR REPLACE FUNCTION messages.unlock_export(p_name text)
RETURNS boolean
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
  SELECT messages.free_lease('export', p_name)
$$;
