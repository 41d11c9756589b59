-- Return how a message ended; if it has not ended, register the caller as a waiter, and its end sends NOTIFY settled with its id.
-- Called by: clients that wait, on a connection that already listens to settled, and again before p_for has passed if they still wait.
-- Result: one row once the message has ended; one row with result NULL while it has not, and its end will notify; no row if there is no
-- such message: it was never published, or it ended and was not kept (a success with archive_success = none, or its retention is over).
-- Locks: the message FOR KEY SHARE, until the transaction ends, which must be soon: claims and heartbeats continue, the message's end
-- waits. Because of that lock no end is missed. The end deletes the row. If it did so first, this call waits for its commit, finds the row
-- gone and, with the snapshot of the next statement, the archive's row. If it deletes the row after this transaction has committed, then
-- archive reads the flag messages.awaited_flag after the row is gone and finds it raised, and notify_waiters finds the waiter with a later
-- snapshot.
CREATE OR REPLACE FUNCTION messages.wait_for(p_id bigint, p_for interval DEFAULT '2 minutes')
RETURNS TABLE (result text, output jsonb, error text, attempts integer, archived_at timestamptz)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  IF p_for IS NULL OR p_for NOT BETWEEN '1 ms' AND '1 hour' THEN
    RAISE EXCEPTION 'p_for of wait_for is %', coalesce('"' || p_for || '"', 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 ms to 1 hour, and call it again if the message has not ended by then';
  END IF;
  PERFORM FROM messages.message AS m WHERE m.id = p_id FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN QUERY
    SELECT a.result, a.output, a.error, a.attempts, a.archived_at FROM messages.message_archive AS a WHERE a.id = p_id;
    RETURN;
  END IF;
  INSERT INTO messages.waiter AS w (message_id, until)
  VALUES (p_id, messages.now() + p_for)
  ON CONFLICT (message_id) DO UPDATE SET until = greatest(w.until, excluded.until);
  PERFORM messages.raise_awaited_flag();
  RETURN QUERY SELECT NULL::text, NULL::jsonb, NULL::text, NULL::integer, NULL::timestamptz;
END
$$;
