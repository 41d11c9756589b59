-- Reserve the name of a consumer for this session, until the session ends.
-- Called by: consume on Spark, before it enters the registry. Locks: as take_lease. Result: whether it was taken; false = another session has
-- it.
CREATE OR REPLACE FUNCTION messages.lock_consumer(p_name text)
RETURNS boolean
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT messages.take_lease('consumer', p_name)
$$;
