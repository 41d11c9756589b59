-- Publish the messages that a batch has for what is the case by now, each once.
-- Called by: finish_batch, apply_batch_changes, apply_missed_batch_changes. A message that its topic refuses, or for
-- which a lock cannot be had in time, is left to the next tick, behind those of other batches: no settle fails because
-- of it.
-- Locks: the rows of messages.batch_callback, and those of a publish.
CREATE OR REPLACE FUNCTION messages.publish_batch_callbacks(p_batch bigint)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_each    messages.batch_callback;
  v_payload jsonb;
  v_id      bigint;
BEGIN
  FOR v_each IN
    SELECT c.* FROM messages.batch_callback AS c
    WHERE c.batch_id = p_batch AND c.due_at IS NOT NULL AND c.message_id IS NULL
    ORDER BY c.event
    FOR NO KEY UPDATE
  LOOP
    v_payload := messages.batch_callback_payload(v_each);
    BEGIN
      SELECT p.id INTO v_id FROM messages.publish(v_each.topic, v_payload) AS p;
      UPDATE messages.batch_callback AS c
      SET message_id = v_id, error = CASE WHEN v_id IS NULL THEN 'topic ' || v_each.topic || ' is full' END,
        due_at = CASE WHEN v_id IS NULL THEN messages.now() ELSE c.due_at END
      WHERE c.batch_id = v_each.batch_id AND c.event = v_each.event;
    EXCEPTION WHEN OTHERS THEN
      UPDATE messages.batch_callback AS c SET error = left(SQLERRM, 1000), due_at = messages.now()
      WHERE c.batch_id = v_each.batch_id AND c.event = v_each.event;
    END;
  END LOOP;
END
$$;

-- Returns the payload of a message that a batch publishes.
-- Called by: publish_batch_callbacks. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.batch_callback_payload(p_callback messages.batch_callback)
RETURNS jsonb
LANGUAGE plpgsql
AS $$
BEGIN
  RETURN (
    SELECT jsonb_build_object(
      'batch', b.id, 'name', b.name, 'event', p_callback.event, 'counts', jsonb_build_object(
        'total', b.total, 'live', b.live, 'succeeded', b.succeeded, 'dead', b.dead, 'cancelled', b.cancelled),
      'metadata', (SELECT a.metadata FROM messages.batch AS a WHERE a.id = b.id))
      || CASE p_callback.event WHEN 'failure' THEN jsonb_build_object('dead_message', p_callback.dead_id) ELSE '{}' END
    FROM messages.batch_state AS b WHERE b.id = p_callback.batch_id);
END
$$;
