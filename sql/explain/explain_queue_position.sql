-- Tells what comes before a ready message: messages that are claimed first, and workers without free capacity.
-- Called by: explain_waiting. Locks: nothing. Result: as explain. It counts to 1000 and no further.
CREATE OR REPLACE FUNCTION messages.explain_queue_position(p_message messages.message, p_now timestamptz)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
AS $$
DECLARE
  v_ahead   bigint := messages.count_ahead(p_message, p_now, 1000);
  v_workers jsonb;
BEGIN
  SELECT jsonb_agg(
    jsonb_build_object('worker', w.name, 'in_flight', w.status -> 'in_flight', 'concurrency', w.concurrency)
      ORDER BY w.name)
  INTO v_workers
  FROM messages.worker_state AS w
  WHERE w.handles
    AND (p_message.topic = ANY (w.topics)
      OR w.patterns IS NOT NULL AND messages.patterns_of(p_message.topic) && w.patterns)
  HAVING bool_and(
    CASE WHEN jsonb_typeof(w.status -> 'in_flight') = 'number'
      THEN (w.status ->> 'in_flight')::numeric >= w.concurrency ELSE false END);
  IF v_workers IS NOT NULL THEN
    code := 'workers_busy';
    reason := format(
      'all %s live workers of topic %s were busy at their last heartbeat', jsonb_array_length(v_workers),
      p_message.topic);
    detail := jsonb_build_object('workers', v_workers);
    RETURN NEXT;
  END IF;
  IF v_ahead > 0 THEN
    code := 'behind';
    reason := format('%s%s ready messages of %s come first', v_ahead,
      CASE WHEN v_ahead >= 1000 THEN ' or more' ELSE '' END,
                     coalesce('channel ' || p_message.channel, 'topic ' || p_message.topic));
    detail := jsonb_build_object('ahead', v_ahead, 'bound', 1000, 'priority', p_message.priority);
    RETURN NEXT;
  END IF;
END
$$;
