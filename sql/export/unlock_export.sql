-- Unlocks an export.
--
-- Result: whether this session had it.
-- Errors: none.
-- Locks: the row of `messages.lease`.
-- Repeat: the second call returns false.
-- Called by: `pgrouse pipeline export`, at its end.
CREATE OR REPLACE FUNCTION messages.unlock_export(p_name text)
RETURNS boolean
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT messages.release_lease('export', p_name)
$$;
