-- How many messages of a limited topic a claim may take now.
-- Called by: claim, only for topics with max_concurrency, dequeue_rate or a breaker that is not closed. Locks: as lock_topic; a claim that
-- does not get the topic leaves it to a later claim. Running messages are counted each time: no counter can drift, and a dead worker frees
-- its slots when its locks expire. Result: slots: at most p_wanted; look_again_at: where slots is 0, when to look again, NULL = not known.
CREATE OR REPLACE FUNCTION messages.topic_slots(
  p_policy messages.policy, p_wanted integer, OUT slots integer, OUT look_again_at timestamptz
)
LANGUAGE plpgsql
AS $$
DECLARE
  v_bound integer := least(p_policy.max_concurrency, p_policy.probes);
BEGIN
  PERFORM messages.check_isolation(p_policy.topic);
  IF NOT messages.lock_topic(p_policy.topic) THEN
    slots := 0;
    look_again_at := messages.now();
    RETURN;
  END IF;

  slots := p_wanted;
  IF v_bound IS NOT NULL THEN
    -- No further than the bound: the count is never of more rows than may run.
    slots := least(slots, v_bound - (
      SELECT count(*) FROM (
        SELECT FROM messages.message AS m WHERE m.topic = p_policy.topic AND m.claim_id IS NOT NULL LIMIT v_bound) AS running)::integer);
  END IF;
  IF p_policy.dequeue_rate IS NOT NULL AND slots > 0 THEN
    SELECT least(topic_slots.slots, s.slots), s.next_at INTO topic_slots.slots, look_again_at
    FROM messages.rate_slots('dequeue', p_policy.topic, p_policy.dequeue_rate, p_policy.burst, messages.now()) AS s;
  END IF;
  slots := greatest(slots, 0);
END
$$;
