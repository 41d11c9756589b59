-- Delete the mutexes of topics without messages and of messages that have ended, and the leases of sessions that are
-- gone: there may be as many names as users.
-- Called by: prune. Locks: the rows it deletes, skipping those that are locked. A session that needs a deleted row
-- creates it again. p_percent: how much of the tables to check. Result: how many rows. A tick every 5 s keeps up with
-- 2,000 messages a second that wait for events: each of them has left a row.
CREATE OR REPLACE FUNCTION messages.prune_mutexes(p_percent real DEFAULT 1)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_mutexes bigint;
  v_leases  bigint;
BEGIN
  DELETE FROM messages.mutex AS x
  WHERE x.ctid = ANY (ARRAY(
    SELECT o.ctid
    FROM messages.mutex AS o TABLESAMPLE SYSTEM (p_percent)
    WHERE (
      o.kind IN ('topic', 'channels')
      -- Under an OR, EXISTS may read all messages once.
      AND (
        SELECT true FROM messages.message AS m
        WHERE m.topic = o.name AND m.claim_id IS NULL AND m.channel IS NULL LIMIT 1) IS NULL
      AND (
        SELECT true FROM messages.message AS m
        WHERE m.topic = o.name AND m.claim_id IS NULL AND m.channel IS NOT NULL LIMIT 1) IS NULL
      AND (
        SELECT true FROM messages.message AS m WHERE m.topic = o.name AND m.claim_id IS NOT NULL LIMIT 1) IS NULL
      OR o.kind = 'event' AND (SELECT true FROM messages.message AS m WHERE m.id = o.name::bigint) IS NULL)
    LIMIT 10000
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_mutexes = ROW_COUNT;
  DELETE FROM messages.lease AS l
  WHERE l.ctid = ANY (ARRAY(
    SELECT o.ctid FROM messages.lease AS o TABLESAMPLE SYSTEM (p_percent)
    WHERE NOT messages.is_lease_alive(o) LIMIT 1000 FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_leases = ROW_COUNT;
  RETURN v_mutexes + v_leases;
END
$$;
