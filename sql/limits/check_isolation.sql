-- Refuse to count running messages in a transaction that cannot see what other claims took since it began.
-- Called by: topic_slots, channel_slots. Locks: nothing. Errors: 25001.
CREATE OR REPLACE FUNCTION messages.check_isolation(p_topic text)
RETURNS void
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'topic % has limits, and this transaction cannot see what other claims have taken', p_topic
      USING ERRCODE = '25001', HINT = 'claim in a transaction with ISOLATION LEVEL READ COMMITTED';
  END IF;
END
$$;
