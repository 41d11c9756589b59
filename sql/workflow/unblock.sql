-- Let messages that wait for others wait no longer: they are released as if those had succeeded.
-- Called by: operators, for what waits for a dead or cancelled message that nobody puts back. What comes after them waits for them as before.
-- Locks: their parked rows, in the order of their ids, until the transaction ends, which must be soon: an end of one that they come after
-- waits for that. Then as release_parked. Result: the ids that wait no longer; others did not, have ended, or are held by somebody right now.
CREATE OR REPLACE FUNCTION messages.unpark(p_ids bigint[])
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
  v_ids    bigint[];
  v_topics text[];
BEGIN
  -- Before the clock is read: a message must not seem older than its transaction, or claims look for it too late.
  PERFORM pg_current_xact_id();
  v_ids := ARRAY(SELECT k.id FROM messages.parked AS k WHERE k.id = ANY (p_ids) ORDER BY k.id FOR UPDATE);
  DELETE FROM messages.edge AS g WHERE g.successor_id = ANY (v_ids);
  PERFORM messages.release_parked(v_ids);
  SELECT coalesce(array_agg(m.id ORDER BY m.id), '{}'), array_agg(DISTINCT m.topic::text)
  INTO v_ids, v_topics
  FROM messages.message AS m
  WHERE m.id = ANY (v_ids) AND NOT EXISTS (SELECT FROM messages.parked AS k WHERE k.id = m.id);
  PERFORM messages.note_messages('unpark', v_topics, v_ids);
  RETURN v_ids;
END
$$;
