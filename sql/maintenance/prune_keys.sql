-- Delete keys that are no longer held: their time is over, or their message was deleted by hand.
-- Called by: prune. p_share: of the keys whose message has not ended, from random pages, so that in time all are
-- checked.
-- Locks: the rows it checks, skipping those that another session is taking over. Result: how many were deleted.
CREATE OR REPLACE FUNCTION messages.prune_keys(p_share double precision DEFAULT 0.05, p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_held messages.held_key[];
  v_free bigint;
  v_lost bigint;
BEGIN
  DELETE FROM messages.held_key AS h
  WHERE h.ctid = ANY (ARRAY(
    SELECT f.ctid FROM messages.held_key AS f
    WHERE f.free_at <= (SELECT messages.now()) ORDER BY f.free_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_free = ROW_COUNT;

  SELECT array_agg((o.topic, o.key, o.message_id, o.free_at)::messages.held_key)
  INTO v_held
  FROM (
    SELECT h.* FROM messages.held_key AS h TABLESAMPLE SYSTEM ((100 * p_share)::real)
    WHERE h.free_at IS NULL LIMIT p_limit FOR UPDATE SKIP LOCKED
  ) AS o;
  -- A new snapshot is needed after the lock: the old one would not see the message of a key that was taken over in
  -- between.
  DELETE FROM messages.held_key AS h
  USING unnest(v_held) AS o
  WHERE h.topic = o.topic AND h.key = o.key
    AND NOT EXISTS (SELECT FROM messages.message AS m WHERE m.id = o.message_id);
  GET DIAGNOSTICS v_lost = ROW_COUNT;
  RETURN v_free + v_lost;
END
$$;
