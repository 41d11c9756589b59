-- Keep others from changing a policy until the transaction ends: for whoever reads the policies and then writes what differs.
-- Called by: operators (pgrouse config apply, pgrouse topic set), before they read. Locks: as the trigger topic_changed. Errors: 55P03.
CREATE OR REPLACE FUNCTION messages.lock_policies()
RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
  SELECT messages.wait_mutex('policies')
$$;
