-- Reserves the name of a consumer for one session, until the session ends: for a worker whose name other workers may be
-- given too. It needs its own connection, not one from a pooler.
--
-- Result: whether the session has the name; false = another session has it. A session that already has it gets true.
-- Errors: 22004 without a name.
-- Locks: the row of `messages.lease`, for which it waits at most a second.
-- Repeat: safe.
-- Called by: consume on Spark, before it enters the registry.
CREATE OR REPLACE FUNCTION messages.lock_consumer(p_name text)
RETURNS boolean
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT messages.take_lease('consumer', p_name)
$$;
