-- NOTIFY settled, with the id of each, for the messages of a statement whose end a client waits for.
-- Called by: announce_ends, after their rows are gone and only while there may be waiters: see wait_for for why no waiter is missed. Above
-- READ COMMITTED the snapshot may be older than a waiter: then all are notified, and the waiters are left to prune_waiters.
-- Locks: the waiters of these messages, which are deleted. Result: how many were notified.
CREATE OR REPLACE FUNCTION messages.notify_waiters(p_ids bigint[])
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
