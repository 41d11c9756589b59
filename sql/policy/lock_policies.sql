-- Prevents others from changing a policy until the transaction ends: for programs that read the policies and then write
-- the differences.
--
-- Errors: 55P03 if another transaction that changed a policy stays open for longer than `lock_timeout`, or 10 s if that
-- is not set.
-- Locks: a row of `messages.mutex`.
-- Repeat: safe.
-- Called by: `pgrouse config apply`, `pgrouse topic set`, before they read.
CREATE OR REPLACE FUNCTION messages.lock_policies()
RETURNS void
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT messages.wait_mutex('policies')
$$;
