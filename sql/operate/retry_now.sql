-- Makes messages that wait for a time available at once: delayed messages, and those that failed and wait for their
-- next attempt; also the first message of an ordered channel, which then continues.
--
-- Result: the ids that no longer wait. Messages that were already ready, are running or have ended are not among them,
-- nor are messages that come after others: see `messages.unblock`. Messages that limits, pauses or an open breaker hold
-- back still wait for those: see `explain`.
-- Errors: none.
-- Locks: the rows, in the order of their ids, waiting for any transaction that claims them right now; then the
-- channels' rows of `messages.rate`.
-- Repeat: safe. Notifies for the topics.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.retry_now(p_ids bigint[])
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids    bigint[];
  v_topics text[];
BEGIN
  SELECT a.ids, a.topics INTO v_ids, v_topics FROM messages.make_available(p_ids) AS a;
  IF v_topics IS NOT NULL THEN
    PERFORM messages.audit_messages('retry_now', v_topics, v_ids);
  END IF;
  RETURN v_ids;
END
$$;
