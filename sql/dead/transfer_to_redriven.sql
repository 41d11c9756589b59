-- Let what belongs to dead messages go to those that they became by a redrive: the steps that they kept, and what comes after them.
-- Called by: put_back, only while the mark messages.awaited is up. p_topics: of the new ones; where a topic is another the steps stay behind,
-- another handler does other ones.
-- Locks: the rows of the steps. The successors hear of it when the transaction commits (the trigger ended).
CREATE OR REPLACE FUNCTION messages.hand_on(p_old bigint[], p_new bigint[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_told bigint[];
BEGIN
  UPDATE messages.step AS s
  SET message_id = h.new
  FROM unnest(p_old, p_new) AS h (old, new)
  JOIN messages.message AS m ON m.id = h.new
  WHERE s.message_id = h.old
    AND NOT EXISTS (SELECT FROM messages.message_archive AS a WHERE a.id = h.old AND a.topic <> m.topic);
  v_told := ARRAY(
    SELECT h.old FROM unnest(p_old) AS h (old)
    WHERE (SELECT true FROM messages.edge AS g WHERE g.predecessor_id = h.old LIMIT 1));
  IF v_told <> '{}' THEN
    PERFORM messages.note_endings(v_told, 'redriven');
  END IF;
END
$$;
