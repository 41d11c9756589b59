-- Whether a claim must survive a crash of the server, whatever synchronous_commit its caller chose.
-- Called by: claim, with the rows that it has locked and is about to take, if its transaction would not wait for the disk. After a crash
-- that undoes a claim the message runs twice at once, and its attempt is not counted. So the claim must be durable where that would break a
-- promise: the topic or its channels have a limit or an order, or it is the message's last attempt.
-- Locks: nothing. Result: true = the transaction has to wait for the disk.
CREATE OR REPLACE FUNCTION messages.needs_durable_claim(p_policy messages.policy, p_rows tid[])
RETURNS boolean
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  IF p_policy.is_limited OR p_policy.limits_channels THEN
    RETURN true;
  END IF;
  RETURN EXISTS (
    SELECT FROM messages.message AS m
    WHERE m.ctid = ANY (p_rows) AND m.attempts + 1 >= nullif(coalesce(m.max_attempts, p_policy.max_attempts), 0));
END
$$;
