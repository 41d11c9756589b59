-- Prevent other policy changes until the transaction ends: for a caller that reads the policies and then writes the differences.
-- Called by: operators (pgrouse config apply, pgrouse topic set), before they read. Locks: as the trigger topic_changed. Errors: 55P03.
CREATE OR REPLACE FUNCTION messages.lock_policies()
RETURNS void
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT messages.wait_mutex('policies')
$$;
