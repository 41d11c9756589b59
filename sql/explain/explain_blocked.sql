-- Lists the predecessors that a blocked message waits for: first those that ended badly, each with a fix, then those
-- that have not ended.
-- Called by: explain_waiting. Locks: nothing. Result: as explain; no row for one that waits for none. Of each it names
-- ten.
CREATE OR REPLACE FUNCTION messages.explain_blocked(p_message messages.message)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_alive bigint[] := ARRAY(
    SELECT g.predecessor_id FROM messages.dependency AS g
    WHERE g.successor_id = p_message.id AND g.failed_result IS NULL ORDER BY g.predecessor_id LIMIT 100);
  -- A large group has 100,000 at most: the index counts them.
  v_count bigint := (
    SELECT count(*) FROM messages.dependency AS g WHERE g.successor_id = p_message.id AND g.failed_result IS NULL);
BEGIN
  RETURN QUERY
  SELECT 'after_dead',
         format('it waits for message %s, which %s; %srun it anyway (`pgrouse message unblock %s`), '
           'or cancel it (`pgrouse message cancel %s`)',
                g.predecessor_id,
                CASE WHEN g.failed_result = 'cancelled' THEN 'was cancelled'
                  ELSE 'is dead (' || g.failed_result || ')' END,
                CASE WHEN g.failed_result <> 'cancelled' AND a.id IS NOT NULL
                  THEN format('redrive that one (`pgrouse redrive %s`), ', g.predecessor_id) END,
                p_message.id, p_message.id),
         jsonb_build_object('message_id', g.predecessor_id, 'result', g.failed_result, 'is_kept', a.id IS NOT NULL)
  FROM messages.dependency AS g
  LEFT JOIN LATERAL (SELECT o.id FROM messages.message_archive AS o WHERE o.id = g.predecessor_id LIMIT 1) AS a ON true
  WHERE g.successor_id = p_message.id AND g.failed_result IS NOT NULL
  ORDER BY g.predecessor_id
  LIMIT 10;
  IF EXISTS (SELECT FROM messages.blocked_message AS k WHERE k.id = p_message.id) AND (v_count > 0 OR NOT FOUND) THEN
    code := 'after';
    reason := CASE
      WHEN v_count = 0 THEN 'its predecessors have ended: the next tick releases it'
      ELSE format('it waits for %s, which %s not ended: `pgrouse explain ID` says why each is not running',
                  CASE WHEN v_count = 1 THEN 'message ' ELSE 'messages ' END || array_to_string(v_alive[1:10], ', ')
                    || CASE WHEN v_count > 10 THEN format(' and %s more', v_count - 10) ELSE '' END,
                  CASE WHEN v_count = 1 THEN 'has' ELSE 'have' END)
    END;
    detail := jsonb_build_object('waits_for', v_alive, 'count', v_count);
    RETURN NEXT;
  END IF;
END
$$;
