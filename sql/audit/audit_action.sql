-- Write into messages.audit that somebody did something by hand; the row stands and falls with the caller's transaction.
-- Called by: the functions of operators, tick and reap for those who run the maintenance by hand, note_messages, note_back, the trigger noted. By nothing on the way of a message: not by publish, claim, settle.
-- p_topic NULL: about none or several. p_target: the one thing it was done to. Locks: nothing but the row it inserts. Result: the row's id.
CREATE OR REPLACE FUNCTION messages.note_action(p_action text, p_topic text, p_target text DEFAULT NULL, p_detail jsonb DEFAULT '{}')
RETURNS bigint
LANGUAGE sql
AS $$
  INSERT INTO messages.audit (at, actor, action, topic, target, detail)
  VALUES (messages.now(), messages.actor(), p_action, p_topic, left(p_target, 500), coalesce(
    (SELECT jsonb_object_agg(d.key, d.value) FROM jsonb_each(p_detail) AS d WHERE d.value <> 'null'), '{}'))
  RETURNING audit.id
$$;
