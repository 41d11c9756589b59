-- Returns how a message ended. If it has not ended, the call records that a caller waits for it, so that its end
-- notifies `settled` with its id. To wait, first LISTEN, then call this function, then wait for the notification; call
-- again when it arrives or before `p_for` has passed. A retry is not an end; a redrive is another message. It shows
-- outputs and errors of any message, so publishers may not call it unless they are given the right.
--
-- Result: one row once the message has ended. One row of NULLs while it has not. No row if there is no such message: it
-- was never published, or the publish is not committed, or it ended and nothing of it is kept. If a caller got the row
-- of NULLs before and now gets no row, the message ended as `success` (`archive_success = 'none'`).
-- Errors: 22023 for a `p_for` outside of 1 ms to 1 hour.
-- Locks: the message, FOR KEY SHARE, until the transaction ends: claims and heartbeats continue, but the end of the
-- message waits for that commit. So call it in a separate transaction. If another transaction is ending the message at
-- this moment, the call waits for its commit.
-- Cost: while any caller waits, each statement that ends messages reads `messages.waiter`. Publishers are not slowed
-- down.
-- Repeat: safe. Several callers may wait for one message.
-- Called by: clients that wait, on a connection that already listens to settled.
-- Inside: Because of that lock no end is missed. The end deletes the row. If it did so first, this call waits for its
-- commit, finds the row gone and, with the snapshot of the next statement, the archive's row. If it deletes the row
-- after this transaction has committed, then archive reads the flag messages.awaited_flag after the row is gone and
-- finds it raised, and notify_waiters finds the waiter with a later snapshot.
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
