-- Ring settled, with the id of each, for those messages of a statement whose end somebody waits for.
-- Called by: tell_ended, after their rows are gone and only while somebody waits for anything: see wait_for for why no waiter is missed.
-- Above READ COMMITTED the snapshot may be older than a waiter: then all are rung for, and the waiters are left to forget_waiters.
-- Locks: the waiters of these messages, which are deleted. Result: how many were rung for.
CREATE OR REPLACE FUNCTION messages.tell_waiters(p_ids bigint[])
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_waited bigint[] := p_ids;
BEGIN
  IF current_setting('transaction_isolation') = 'read committed' THEN
    WITH told AS (
      DELETE FROM messages.waiter AS w WHERE w.message_id = ANY (p_ids) RETURNING w.message_id
    )
    SELECT array_agg(t.message_id) INTO v_waited FROM told AS t;
  END IF;
  IF cardinality(v_waited) > 0 THEN
    PERFORM messages.notify('settled', v_waited::text[]);
  END IF;
  RETURN coalesce(cardinality(v_waited), 0);
END
$$;
