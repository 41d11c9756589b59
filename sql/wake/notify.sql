-- Send notifications on a NOTIFY channel, if the server has room for them: a hint must never make the work fail.
-- Called by: everything that notifies, and workers that check their listener. It reads and writes no table.
-- While its queue is full PostgreSQL refuses to commit a transaction that notifies. So above nine tenths nothing is sent, and the messages
-- are found by polling. The check costs less than it saves, and lets the server drop notifications that all listeners have read.
-- Locks: nothing; PostgreSQL takes its notify lock at commit, only if something was sent. Result: whether it was sent.
CREATE OR REPLACE FUNCTION messages.notify(p_channel text, p_payloads text[])
RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
  -- Before PostgreSQL 17 it is this, and cannot be set.
  v_pages   bigint := coalesce(current_setting('max_notify_queue_pages', true)::bigint, 1048576);
  -- What each takes besides its texts is 18 bytes and what is left at the end of a page. Pages are given back by 32, a segment of a file.
  v_bytes   bigint := octet_length(array_to_string(p_payloads, '')) + cardinality(p_payloads) * (octet_length(p_channel) + 24);
  v_payload text;
BEGIN
  IF pg_notification_queue_usage() + (v_bytes / 8192.0 + 32) / v_pages > 0.9 THEN
    RETURN false;
  END IF;
  -- A loop: a query over the array would be planned for each call.
  FOREACH v_payload IN ARRAY coalesce(p_payloads, '{}') LOOP
    PERFORM pg_notify(p_channel, v_payload);
  END LOOP;
  RETURN true;
END
$$;
