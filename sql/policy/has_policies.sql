-- Whether some topic may use a policy that publishing or settling has to look at.
-- Called by: archive and the trigger admit. Locks: nothing, and it needs no snapshot. Result: true once a policy like that was written
-- anywhere, also if it is not committed yet; false again some time after the last one is gone.
CREATE OR REPLACE FUNCTION messages.is_policed()
RETURNS boolean
LANGUAGE sql
VOLATILE
AS $$
  SELECT pg_sequence_last_value('messages.policed') > 1
$$;
