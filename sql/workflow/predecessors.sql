-- Return how the messages ended after which a message was published, and their outputs.
-- Called by: the worker that holds the message. With strict_lock an expired lock is lost. Locks: nothing.
-- Result: a row for each id of p_after, in its order; a row of NULL if there is none. No row: the message is not under this claim.
-- redriven_as: the message that it became by redrives, whose result this is. result is NULL if nothing is known: nothing of it is kept, or it
-- is live (someone released the message by unblock). output is text, so that one hostile value harms no other.
CREATE OR REPLACE FUNCTION messages.predecessors(p_id bigint, p_claim_id bigint)
RETURNS TABLE (id bigint, redriven_as bigint, topic text, result text, output text, error text)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN QUERY
  WITH RECURSIVE line AS (
    SELECT e.place, e.id AS asked, e.id, 0 AS redrives
    FROM messages.predecessor_list AS p
    CROSS JOIN LATERAL unnest(p.ids) WITH ORDINALITY AS e (id, place)
    WHERE p.message_id = p_id
    UNION ALL
    SELECT l.place, l.asked, r.message_id, l.redrives + 1
    FROM line AS l
    JOIN messages.redrive_log AS r ON r.archived_id = l.id
    WHERE l.redrives < 100
  ), latest AS (
    SELECT DISTINCT ON (l.place) l.place, l.asked, a.id, a.topic, a.result, a.output, a.error
    FROM line AS l
    LEFT JOIN messages.message_archive AS a ON a.id = l.id
    -- The last one that has ended: one may be redriven after its bad end counted as done.
    ORDER BY l.place, a.id IS NULL, l.redrives DESC
  )
  SELECT t.asked, nullif(t.id, t.asked), t.topic, t.result, t.output::text, t.error
  FROM messages.message AS m
  LEFT JOIN latest AS t ON true
  WHERE m.id = p_id AND m.claim_id = p_claim_id AND (m.lock_expires_at > messages.now() OR NOT messages.has_strict_lock(m.topic))
  ORDER BY t.place;
END
$$;
