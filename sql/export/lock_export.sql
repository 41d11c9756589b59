-- Reserve an export for this session, until the session ends or releases it.
-- Called by: pgrouse pipeline export, before it reads the cursor. Locks: as take_lease. Result: whether it was taken; false = another
-- session has it.
CREATE OR REPLACE FUNCTION messages.lock_export(p_name text)
RETURNS boolean
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT messages.take_lease('export', p_name)
$$;
