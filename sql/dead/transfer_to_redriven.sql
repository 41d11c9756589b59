-- Transfer what belongs to dead messages to the messages that a redrive made of them: saved steps and successors.
-- Called by: redrive_rows, only while the flag messages.awaited_flag is raised. p_topics: of the new messages; if the topic changes, the
-- steps stay behind, since another handler has other steps.
-- Locks: the rows of the steps. The successors are updated when the transaction commits (the trigger propagate_ends_at_commit).
CREATE OR REPLACE FUNCTION messages.transfer_to_redriven(p_old bigint[], p_new bigint[])
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
    WHERE (SELECT true FROM messages.dependency AS g WHERE g.predecessor_id = h.old LIMIT 1));
  IF v_told <> '{}' THEN
    PERFORM messages.add_end_events(v_told, 'redriven');
  END IF;
END
$$;
