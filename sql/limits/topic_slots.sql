-- How many messages of a limited topic a claim may take now.
-- Called by: claim, only for topics with max_concurrency, dequeue_rate or a breaker that is not closed. Locks: as lock_topic; a claim that
-- does not get the topic leaves it to a later claim. Running messages are counted each time: no counter can drift, and a dead worker frees
-- its slots when its locks expire. Result: at most p_wanted; 0 = none, and record_held_back records when to look again.
CREATE OR REPLACE FUNCTION messages.topic_slots(p_policy messages.policy, p_wanted integer)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
  v_bound integer := least(p_policy.max_concurrency, p_policy.probes);
  v_room  integer := p_wanted;
  v_until timestamptz;
BEGIN
  PERFORM messages.check_isolation(p_policy.topic);
  IF NOT messages.lock_topic(p_policy.topic) THEN
    PERFORM messages.record_held_back(p_policy.topic, 'topic', messages.now());
    RETURN 0;
  END IF;

  IF v_bound IS NOT NULL THEN
    -- No further than the bound: the count is never of more rows than may run.
    v_room := least(v_room, v_bound - (
      SELECT count(*) FROM (
        SELECT FROM messages.message AS m WHERE m.topic = p_policy.topic AND m.claim_id IS NOT NULL LIMIT v_bound) AS running)::integer);
  END IF;
  IF p_policy.dequeue_rate IS NOT NULL AND v_room > 0 THEN
    SELECT least(v_room, s.slots), s.next_at INTO v_room, v_until
    FROM messages.rate_slots('dequeue', p_policy.topic, p_policy.dequeue_rate, p_policy.burst, messages.now()) AS s;
  END IF;
  IF v_room <= 0 THEN
    PERFORM messages.record_held_back(p_policy.topic, 'topic', v_until);
  END IF;
  RETURN greatest(v_room, 0);
END
$$;
