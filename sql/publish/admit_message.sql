-- Apply the topic's policy to each message that is published: reject it, drop it, or set the topic's TTL.
-- It is not called for a topic without such a policy, unless its hash has the same bit in the sequence as a topic that
-- has one (see policy_topic_bits). Reading the sequence costs next to nothing, and publishers cannot write it. What the
-- queue itself inserts (redrives, dead letters) is never rejected, and copies for subscribers are accepted by every
-- topic. Counted limits are charged by the trigger apply_publish_policies, once per statement; only dropping is decided
-- here.
-- Errors: PGR03 the topic does not accept publishes, PGR04 too large, PGR05 the name is reserved.
-- Locks: nothing; for topics that drop what does not fit, their row of depth.
CREATE OR REPLACE FUNCTION messages.admit_message()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_policy record;
  v_is_new boolean := NEW.dlq_moved_at IS NULL AND NEW.redriven_from IS NULL;
BEGIN
  IF v_is_new AND NEW.topic LIKE '%.dlq' THEN
    RAISE EXCEPTION 'topic % is reserved: names that end with .dlq are those of dead letters', NEW.topic
      USING ERRCODE = 'PGR05', HINT = 'publish to a topic with another name';
  END IF;
  -- Rows of a topic without such a policy may come in thousands, if a topic with one has its bit. So this check comes
  -- first: it costs a quarter of the admission. Its result is not kept from row to row: what the trigger can keep, a
  -- publisher can write.
  IF NOT EXISTS (SELECT FROM messages.topic AS t WHERE t.topic = NEW.topic AND messages.needs_policy_bit(t))
    AND NOT EXISTS (
      SELECT FROM messages.inherited_policy AS d
      WHERE d.topic = messages.inherits_from(NEW.topic) AND messages.needs_policy_bit(row(d.*)::messages.topic)) THEN
    RETURN NEW;
  END IF;
  v_policy := messages.publish_policy(NEW.topic);

  -- A dead letter waits for a person, who has no TTL.
  IF NEW.expires_at IS NULL AND NEW.dlq_moved_at IS NULL AND v_policy.ttl IS NOT NULL THEN
    NEW.expires_at := least(greatest(NEW.available_at, messages.now()) + v_policy.ttl, '9000-01-01 00:00+00');
  END IF;
  IF NOT v_is_new THEN
    RETURN NEW;
  END IF;

  -- Most policies say neither: a call for each row would be felt.
  IF NOT v_policy.accept_publishes OR v_policy.max_payload_bytes IS NOT NULL THEN
    PERFORM messages.check_admission(
      NEW.topic, NEW.payload, NEW.body, v_policy.accept_publishes OR NEW.origin_id IS NOT NULL,
      v_policy.max_payload_bytes);
  END IF;
  -- If the key is in use nothing is added; if it is gone by the time of the INSERT, the trigger
  -- apply_publish_policies finds out.
  IF v_policy.max_depth IS NOT NULL AND v_policy.on_full = 'drop'
    AND (NEW.key IS NULL OR messages.pending_with_key(NEW.topic, NEW.key) IS NULL)
    AND messages.depth_left(NEW.topic, v_policy.max_depth) <= 0 THEN
    RETURN NULL;
  END IF;
  RETURN NEW;
END
$$;

-- DISTINCT FROM: who may not read the sequence is not let by. The bit is that of policy_topic_bit, which publishers may
-- not call.
CREATE OR REPLACE TRIGGER admit_message
BEFORE INSERT ON messages.message
FOR EACH ROW
WHEN (
  (
    pg_sequence_last_value('messages.policy_topic_bits'::regclass) >> 1 + (hashtext(NEW.topic::text) & 2147483647) % 62
  ) & 1 IS DISTINCT FROM 0
  OR NEW.topic LIKE '%.dlq')
EXECUTE FUNCTION messages.admit_message();
