-- Let one transaction at a time change policies or subscriptions: the triggers read all of them, and must see each
-- other.
-- Called by: the triggers topic_changed and subscription_changed, first. Above READ COMMITTED a transaction may have a
-- snapshot from before another change: the row that each of them writes makes it fail then.
-- Locks: the mutex 'policies', waited for as wait_mutex says, and the row '*' of messages.inherited_policy, until the
-- transaction ends. Errors: 55P03; 40001 above READ COMMITTED.
CREATE OR REPLACE FUNCTION messages.begin_policy_change()
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  PERFORM messages.wait_mutex('policies');
  UPDATE messages.inherited_policy AS d SET topic = d.topic WHERE d.topic = '*';
END
$$;
