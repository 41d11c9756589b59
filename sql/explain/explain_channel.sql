-- Finds the limit of its channel that a ready message waits for: an earlier message in an ordered topic, the
-- concurrency, or the minimum interval.
-- Called by: explain_waiting. Locks: nothing. Result: as explain. Slot holders: the first 20, as worker and message.
CREATE OR REPLACE FUNCTION messages.explain_channel(
  p_message messages.message, p_policy messages.policy, p_now timestamptz
)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_limit    integer;
  v_interval interval;
  v_held     jsonb;
  v_rate     messages.rate;
  v_name     text := format('channel %s of topic %s', p_message.channel, p_message.topic);
BEGIN
  SELECT CASE WHEN p_policy.ordered THEN 1 ELSE nullif(coalesce(o.concurrency, p_policy.channel_concurrency), 0) END,
         nullif(coalesce(o.min_interval, p_policy.channel_min_interval), '0')
  INTO v_limit, v_interval
  FROM (VALUES (1)) AS one (row)
  LEFT JOIN messages.channel AS o ON o.topic = p_message.topic AND o.channel = p_message.channel;
  SELECT r.* INTO v_rate FROM messages.rate AS r
  WHERE r.kind = 'channel' AND r.topic = p_message.topic AND r.channel = p_message.channel;
  -- An interval that was shortened holds at once.
  IF v_rate.free_at > p_now + v_interval THEN
    v_rate.free_at := p_now + v_interval;
  END IF;

  IF v_limit IS NOT NULL THEN
    v_held := messages.slot_holders(p_message.topic, p_message.channel, v_limit);
  END IF;
  IF v_held IS NOT NULL THEN
    code := CASE WHEN p_policy.ordered THEN 'ordered' ELSE 'channel_full' END;
    reason := CASE
      WHEN p_policy.ordered THEN format('%s is processed in order, one message at a time; now running: %s',
        v_name, messages.format_slot_holders(v_held))
      ELSE format('%s has reached its limit of %s; running on %s',
        v_name, v_limit, messages.format_slot_holders(v_held))
    END;
    detail := jsonb_build_object('channel', p_message.channel, 'limit', v_limit, 'held', v_held);
    RETURN NEXT;
  END IF;

  -- The hold counts only while the message that made it waits; of that one, explain_message tells.
  IF v_rate.blocked_until > p_now AND v_rate.blocked_by <> p_message.id
    AND EXISTS (SELECT FROM messages.message AS f WHERE f.id = v_rate.blocked_by AND f.claim_id IS NULL) THEN
    code := 'ordered';
    reason := format('%s is processed in order: message %s comes first, and its next attempt is due in %s; '
      'to continue without it: `pgrouse message skip %s`',
      v_name, v_rate.blocked_by, messages.format_interval(v_rate.blocked_until - p_now), v_rate.blocked_by);
    detail := jsonb_build_object(
      'channel', p_message.channel, 'blocked_by', v_rate.blocked_by, 'blocked_until', v_rate.blocked_until);
    RETURN NEXT;
  END IF;
  IF v_interval IS NOT NULL AND v_rate.free_at > p_now THEN
    code := 'channel_interval';
    reason := format(
      '%s starts one message every %s: the next in %s', v_name, messages.format_interval(v_interval),
      messages.format_interval(v_rate.free_at - p_now));
    detail := jsonb_build_object('channel', p_message.channel, 'min_interval', v_interval, 'free_at', v_rate.free_at);
    RETURN NEXT;
  END IF;
END
$$;
