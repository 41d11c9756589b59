-- Picks and locks the rows that a claim takes of a topic which may not be plain.
-- Called by: claim_with_next_due. p_left: how many the claim may still take; p_slots: how many of this topic, NULL = no
-- limit of its own; p_prefetch: how many of those would wait in the worker; a limit leaves them out. p_after: as
-- pick_with_channel.
-- Locks: as topic_slots and pick_messages.
-- Result: room: how many it may take; at: the time of the claim, later than p_now if it waited for a lock; held_back:
-- what limits hold back, as claim_with_next_due returns it, '{}' = nothing; is_stopped: the topic is paused, or its
-- breaker is open.
CREATE OR REPLACE FUNCTION messages.plan_claim(
  p_worker text, p_topic text, p_now timestamptz, p_claim_id bigint, p_left integer, p_slots integer,
  p_prefetch integer, p_bytes bigint, p_after text
)
RETURNS messages.claim_plan
LANGUAGE plpgsql
AS $$
DECLARE
  v_plan   messages.claim_plan;
  v_policy messages.policy := messages.claim_policy(p_topic, p_now);
  v_until  timestamptz     := nullif(v_policy.stopped_until, 'infinity');
BEGIN
  v_plan.policy := v_policy;
  v_plan.at := p_now;
  v_plan.held_back := '{}';
  v_plan.is_stopped := v_policy.stopped_until IS NOT NULL;
  v_plan.room := least(
    p_left,
    coalesce(p_slots, p_left)
      - CASE WHEN v_policy.is_limited OR v_policy.limits_channels THEN coalesce(p_prefetch, 0) ELSE 0 END);
  IF v_plan.is_stopped THEN
    v_plan.room := 0;
    v_plan.held_back := jsonb_build_object('topic ' || p_topic, v_until);
  ELSIF v_policy.is_limited AND v_plan.room > 0 THEN
    SELECT s.slots, s.look_again_at INTO v_plan.room, v_until
    FROM messages.topic_slots(v_policy, p_worker, v_plan.room) AS s;
    v_plan.at := messages.now();
    v_plan.held_back := CASE WHEN v_plan.room = 0 THEN jsonb_build_object('topic ' || p_topic, v_until) ELSE '{}' END;
  END IF;
  IF v_plan.room > 0 THEN
    v_plan.picked := messages.pick_messages(v_policy, v_plan.at, p_claim_id, p_after, v_plan.room, p_bytes);
    IF (v_plan.picked).held_back THEN
      v_plan.held_back := jsonb_build_object(
        'channels ' || p_topic, nullif((v_plan.picked).look_again_at, 'infinity'));
    END IF;
  END IF;
  RETURN v_plan;
END
$$;

-- Lock the next ready rows of one topic, with and without a channel.
-- Called by: plan_claim. Odd claims begin with the channels, even ones without: neither kind starves the other. A topic
-- whose channels have a low-water mark has had some; where there is none, looking for a first entry does not walk over
-- dead ones.
-- Locks and result: as pick_without_channel and pick_with_channel.
CREATE OR REPLACE FUNCTION messages.pick_messages(
  p_policy messages.policy, p_now timestamptz, p_claim_id bigint, p_after text, p_limit integer, p_bytes bigint
)
RETURNS messages.picked
LANGUAGE plpgsql
AS $$
DECLARE
  -- Where no session raises the marks, some claims read from the left edge, so that no row can stay below a mark
  -- forever.
  v_marks  boolean := p_claim_id % 64 <> 0
    OR EXISTS (SELECT FROM messages.low_water_mark AS k WHERE k.left_edge_at > clock_timestamp() - interval '1 minute');
  v_first  messages.picked;
  v_second messages.picked;
BEGIN
  IF NOT (
    EXISTS (SELECT FROM messages.low_water AS w WHERE w.topic = p_policy.topic AND w.priority = -1)
    OR EXISTS (
      SELECT FROM messages.message AS m
      WHERE m.topic = p_policy.topic AND m.claim_id IS NULL AND m.channel IS NOT NULL)
  ) THEN
    RETURN messages.pick_without_channel(p_policy, p_now, p_limit, p_bytes, v_marks);
  END IF;
  IF p_claim_id % 2 = 1 THEN
    v_first := messages.pick_with_channel(p_policy, p_now, p_after, p_limit, p_bytes, v_marks);
    v_second := messages.pick_without_channel(
      p_policy, p_now, p_limit - cardinality(v_first.rows), p_bytes - v_first.bytes, v_marks);
  ELSE
    v_first := messages.pick_without_channel(p_policy, p_now, p_limit, p_bytes, v_marks);
    v_second := messages.pick_with_channel(
      p_policy, p_now, p_after, p_limit - cardinality(v_first.rows), p_bytes - v_first.bytes, v_marks);
  END IF;
  RETURN row(
    v_first.rows || v_second.rows, v_first.bytes + v_second.bytes,
    v_first.over || v_second.over, v_first.expired || v_second.expired,
    v_first.held_back OR v_second.held_back, coalesce(v_first.look_again_at, v_second.look_again_at))::messages.picked;
END
$$;
