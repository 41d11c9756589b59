-- Ends a pause, and notifies workers of the topics that it releases. `*` ends the pause of all topics, a pattern
-- that of its own; a separate pause of a topic, pattern or channel continues.
--
-- Result: whether it was paused.
-- Errors: 22004 without a topic.
-- Locks: as `messages.pause`.
-- Repeat: safe.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.resume(p_topic text, p_channel text DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_before record;
  v_topic  text;
  v_wanted text[]      := CASE WHEN p_topic <> '*' THEN ARRAY[p_topic] END;
BEGIN
  IF p_topic IS NULL THEN
    RAISE EXCEPTION 'resume needs a topic' USING ERRCODE = '22004', HINT = 'name one, or * for all';
  END IF;
  IF p_channel IS NULL THEN
    SELECT t.paused_at, t.resume_at INTO v_before FROM messages.topic AS t WHERE t.topic = p_topic FOR UPDATE;
    UPDATE messages.topic AS t SET paused_at = NULL, resume_at = NULL, paused_by = NULL, paused_reason = NULL
    WHERE t.topic = p_topic AND t.paused_at IS NOT NULL;
  ELSE
    SELECT c.paused_at, c.resume_at INTO v_before
    FROM messages.channel AS c WHERE c.topic = p_topic AND c.channel = p_channel FOR UPDATE;
    UPDATE messages.channel AS c SET paused_at = NULL, resume_at = NULL, paused_by = NULL, paused_reason = NULL
    WHERE c.topic = p_topic AND c.channel = p_channel AND c.paused_at IS NOT NULL;
    -- Claims of a topic look at its channels one by one as long as any has a row.
    DELETE FROM messages.channel AS c
    WHERE c.topic = p_topic AND c.channel = p_channel AND num_nonnulls(c.concurrency, c.min_interval) = 0;
  END IF;
  IF NOT messages.is_paused(v_before.paused_at, v_before.resume_at, v_now) THEN
    RETURN false;
  END IF;

  -- Sleepers may have looked while the pause held: they know of nothing that is due.
  IF right(p_topic, 1) <> '*' THEN
    PERFORM messages.notify_topics(ARRAY[p_topic], v_now);
    RETURN true;
  END IF;
  v_topic := messages.next_topic(v_wanted, '', true, v_wanted);
  WHILE v_topic IS NOT NULL LOOP
    PERFORM messages.notify_topics(ARRAY[v_topic], v_now);
    v_topic := messages.next_topic(v_wanted, v_topic, true, v_wanted);
  END LOOP;
  RETURN true;
END
$$;
