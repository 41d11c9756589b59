-- Sends every notification of this schema; daemons also use it to check that they receive notifications. While the
-- server's notification queue is full, PostgreSQL refuses every commit of a transaction that notifies (54000). So this
-- function sends nothing if the queue would be more than nine tenths full; polling then finds what the notification
-- would have announced.
--
-- Result: whether it was sent.
-- Errors: none.
-- Locks: PostgreSQL's own lock for NOTIFY at the commit, if something was sent.
-- Called by: everything that notifies, and workers that check their listener.
-- Inside: The check costs less than it saves, and lets the server drop notifications that all listeners have read.
CREATE OR REPLACE FUNCTION messages.notify(p_channel text, p_payloads text[])
RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
  -- Before PostgreSQL 17 it is this, and cannot be set.
  v_pages   bigint := coalesce(current_setting('max_notify_queue_pages', true)::bigint, 1048576);
  -- In addition to its texts, each takes 18 bytes and what is left at the end of a page. Pages are released by 32, a
  -- segment of a file.
  v_bytes   bigint := octet_length(array_to_string(p_payloads, ''))
    + cardinality(p_payloads) * (octet_length(p_channel) + 24);
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
