-- Returns the neighbours of a message: the messages that it waits for (`before`) and those that wait for it (`after`),
-- at most 100 of each, by id. An edge disappears once its predecessor has succeeded.
--
-- Result: `state` is the one of `messages.state`; NULL = nothing of the neighbour is kept. `after_failed`: what the
-- waiting message does if the other does not succeed.
-- Errors: none.
-- Locks: none.
-- Called by: operators, `pgrouse message show`, the dashboard.
CREATE OR REPLACE FUNCTION messages.workflow(p_id bigint)
RETURNS TABLE (direction text, id bigint, topic text, state text, after_failed text)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN QUERY
  SELECT n.direction, n.id, s.topic, coalesce(s.state, n.failed_result), n.after_failed
  FROM (
    (SELECT 'before' AS direction, g.predecessor_id AS id, g.failed_result, k.after_failed
     FROM messages.dependency AS g JOIN messages.blocked_message AS k ON k.id = g.successor_id
     WHERE g.successor_id = p_id ORDER BY g.predecessor_id LIMIT 100)
    UNION ALL
    (SELECT 'after', g.successor_id, NULL, k.after_failed
     FROM messages.dependency AS g JOIN messages.blocked_message AS k ON k.id = g.successor_id
     WHERE g.predecessor_id = p_id ORDER BY g.successor_id LIMIT 100)
  ) AS n
  LEFT JOIN LATERAL (
    SELECT m.topic::text AS topic,
           messages.live_state(m.id, m.topic, m.channel, m.claim_id, m.available_at, m.history, messages.now()) AS state
    FROM messages.message AS m WHERE m.id = n.id
    UNION ALL
    SELECT a.topic, a.result FROM messages.message_archive AS a WHERE a.id = n.id
    LIMIT 1
  ) AS s ON true
  ORDER BY n.direction DESC, n.id;
END
$$;
