-- Record in messages.audit what an operator did; the row commits or rolls back with the caller's transaction.
-- Called by: the functions of operators, tick and run_maintenance for those who run the maintenance by hand,
-- audit_messages, audit_redrive, the trigger audit_change. Not called while a message is published, claimed or settled.
-- p_topic NULL: about none or several. p_target: the one thing it was done to. Locks: nothing but the row it inserts.
-- Result: the row's id.
CREATE OR REPLACE FUNCTION messages.audit_action(
  p_action text, p_topic text, p_target text DEFAULT NULL, p_detail jsonb DEFAULT '{}'
)
RETURNS bigint
LANGUAGE sql
AS $$
  INSERT INTO messages.audit (at, actor, action, topic, target, detail)
  VALUES (messages.now(), messages.actor(), p_action, p_topic, left(p_target, 500), coalesce(
    (SELECT jsonb_object_agg(d.key, d.value) FROM jsonb_each(p_detail) AS d WHERE d.value <> 'null'), '{}'))
  RETURNING audit.id
$$;
