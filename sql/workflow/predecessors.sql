-- Returns how the messages ended after which a message was published (`p_after`), and what their handlers returned, to
-- the worker that holds it. No one else gets anything: a worker reads the outputs of the predecessors of the messages
-- that it has claimed.
--
-- Result: a row for each id of `p_after`, in its order. `redriven_as`: the message that it became by redrives, if it
-- was redriven; `result`, `output` and `error` are those of that message. `result` is NULL if nothing of the message is
-- kept, or if it has not ended because someone released its successor by `unblock`. `output` is JSON as text (so that
-- one hostile value harms no other), encrypted if the topic of that message is. If the message came after none, one row
-- of NULLs. **No row: the message is not under this claim.** With `strict_lock`, an expired lock is lost too.
-- Errors: none.
-- Locks: none.
-- Called by: the worker that holds the message.
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
  WHERE m.id = p_id AND m.claim_id = p_claim_id
    AND (m.lock_expires_at > messages.now() OR NOT messages.has_strict_lock(m.topic))
  ORDER BY t.place;
END
$$;
