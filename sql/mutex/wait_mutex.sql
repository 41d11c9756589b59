-- Lock a row of messages.mutex, or fail: for work that cannot be left to a later call.
-- Called by: begin_policy_change, lock_policies. Locks: as lock_mutex; waited for as
-- long as the session's lock_timeout says, 10 s where it says nothing. Errors: 55P03.
CREATE OR REPLACE FUNCTION messages.wait_mutex(p_kind text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  IF NOT messages.lock_mutex(p_kind, '', messages.lock_wait_limit()) THEN
    RAISE EXCEPTION 'another transaction has changed % and stays open', p_kind
      USING ERRCODE = '55P03', HINT = 'try again; SELECT * FROM messages.doctor() names who it is';
  END IF;
END
$$;
