-- Move a waiting message that was published again with debounce, for which p_at is asked: never earlier than before, so
-- no worker has to be woken and no low-water mark lowered; and never later than its limit. A message that was published
-- without debounce keeps its time.
-- Called by: insert_or_merge, which has just changed the message. Its TTL, which counts from p_at, then counts from the
-- time when the message is available, or from now if that is over. A message that waits for others has the last time
-- that there is. Locks: the message.
CREATE OR REPLACE FUNCTION messages.debounce_message(p_id bigint, p_at timestamptz)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  UPDATE messages.message AS m
  SET available_at = n.at,
    -- LEAST alone would give a TTL to a message that has none.
    expires_at = CASE WHEN m.expires_at IS NOT NULL
      THEN least(m.expires_at + (greatest(n.at, clock_timestamp()) - p_at), '9000-01-01 00:00+00') END
  FROM (
    SELECT CASE WHEN o.debounce_limit IS NULL THEN o.available_at
      ELSE greatest(o.available_at, least(o.debounce_limit, p_at)) END AS at
    FROM messages.message AS o WHERE o.id = p_id
  ) AS n
  WHERE m.id = p_id;
END
$$;
