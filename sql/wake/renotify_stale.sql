-- Notifies `new_message` once for each topic with messages that have been ready for longer than the given time: a
-- notification was lost, or no worker was running. It notifies whether or not a worker is armed. Topics with `notify =
-- 'off'` and paused topics get no notification. A call looks at no more than `p_limit` topics with waiting messages;
-- the next call continues behind them.
--
-- Result: how many topics.
-- Errors: none.
-- Locks: its row of `messages.tick_cursor`.
-- Called by: tick.
CREATE OR REPLACE FUNCTION messages.renotify_stale(p_older_than interval DEFAULT '10 s', p_limit integer DEFAULT 2000)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_before   timestamptz := messages.now() - p_older_than;
  v_notified bigint := 0;
  v_topic    text;
  v_next     record;
  v_stale    boolean;
BEGIN
  FOREACH v_topic IN ARRAY messages.tick_topics('renotify_stale', p_limit) LOOP
    v_stale := coalesce(messages.next_channel_due(v_topic, v_before, false) < v_before, false);
    SELECT n.* INTO v_next FROM messages.next_priority(v_topic, (-1)::smallint, true) AS n;
    WHILE v_next.priority IS NOT NULL AND NOT v_stale LOOP
      v_stale := EXISTS (
        SELECT FROM messages.message AS m
        WHERE m.topic = v_topic AND m.priority = v_next.priority AND m.claim_id IS NULL AND m.channel IS NULL
          AND m.available_at >= v_next.low AND m.available_at < v_before);
      SELECT n.* INTO v_next FROM messages.next_priority(v_topic, v_next.priority, true) AS n;
    END LOOP;
    IF v_stale AND (messages.claim_policy(v_topic, messages.now())).stopped_until IS NULL
      AND coalesce(
        (SELECT t.notify FROM messages.topic AS t WHERE t.topic = v_topic),
        (SELECT d.notify FROM messages.inherited_policy AS d WHERE d.topic = messages.inherits_from(v_topic))
      ) <> 'off' THEN
      PERFORM messages.notify('new_message', ARRAY[v_topic]);
      v_notified := v_notified + 1;
    END IF;
  END LOOP;
  RETURN v_notified;
END
$$;
