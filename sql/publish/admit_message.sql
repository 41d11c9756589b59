-- What the policy of its topic says about a message that is published: refuse it, drop it, or give it the topic's TTL.
-- It is not called at all for a topic that uses no policy like that, but for one whose hash has the same bit in the sequence as that of a topic
-- which does (see policed_topics). Reading the sequence costs next to nothing, and no publisher can write it.
-- What the queue itself puts back (redrives, dead letters) is never refused, and copies for subscribers need no registered topic.
-- Limits that are counted are charged by the trigger admitted, once per statement; only what is dropped must be decided here.
-- Errors: PGR03 the topic is not registered, PGR04 too large, PGR05 the name is reserved.
-- Locks: nothing; for topics that drop what does not fit, their row of depth.
CREATE OR REPLACE FUNCTION messages.admit()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  v_policy record;
  v_is_new boolean := NEW.dlq_moved_at IS NULL AND NEW.redriven_from IS NULL;
BEGIN
  IF v_is_new AND NEW.topic LIKE '%.dlq' THEN
    RAISE EXCEPTION 'topic % is reserved: names that end with .dlq are those of dead letters', NEW.topic
      USING ERRCODE = 'PGR05', HINT = 'publish to a topic with another name';
  END IF;
  -- Rows of a topic without such a policy may come in thousands, if a topic with one has its bit: so first this look, a quarter of what
  -- admission costs.
  -- What it found is not remembered from row to row: whatever the trigger can remember, a publisher can write.
  PERFORM FROM messages.topic AS t WHERE t.topic = ANY (ARRAY['*', NEW.topic]) AND messages.needs_mark(t);
  IF NOT FOUND THEN
    RETURN NEW;
  END IF;
  v_policy := messages.admission(NEW.topic);

  -- A dead letter waits for a person, who has no TTL.
  IF NEW.expires_at IS NULL AND NEW.dlq_moved_at IS NULL AND v_policy.ttl IS NOT NULL THEN
    NEW.expires_at := least(greatest(NEW.available_at, messages.now()) + v_policy.ttl, '9000-01-01 00:00+00');
  END IF;
  IF NOT v_is_new THEN
    RETURN NEW;
  END IF;

  IF NOT v_policy.is_open AND NEW.origin_id IS NULL THEN
    RAISE EXCEPTION 'topic % is not registered, and only registered topics are accepted', NEW.topic
      USING ERRCODE = 'PGR03', HINT = 'set registered for it in messages.topic, or check the name';
  END IF;
  IF v_policy.max_payload_bytes IS NOT NULL THEN
    PERFORM messages.check_size(NEW.topic, coalesce(octet_length(NEW.payload::text), octet_length(NEW.body)), v_policy.max_payload_bytes);
  END IF;
  -- Where the key stands already nothing is added; should it be gone by the time of the INSERT, the trigger admitted finds out.
  IF v_policy.max_depth IS NOT NULL AND v_policy.on_full = 'drop'
    AND (NEW.key IS NULL OR messages.standing(NEW.topic, NEW.key) IS NULL)
    AND messages.room(NEW.topic, v_policy.max_depth) <= 0 THEN
    PERFORM set_config('messages.dropped', NEW.id::text, true);
    RETURN NULL;
  END IF;
  RETURN NEW;
END
$$;

-- DISTINCT FROM: who may not read the sequence is not let by. The bit is the one of the function policed_topics.
CREATE OR REPLACE TRIGGER admit
BEFORE INSERT ON messages.message
FOR EACH ROW
WHEN (
  (pg_sequence_last_value('messages.policed_topics'::regclass) >> 1 + (hashtext(NEW.topic::text) & 2147483647) % 62) & 1 IS DISTINCT FROM 0
  OR NEW.topic LIKE '%.dlq')
EXECUTE FUNCTION messages.admit();
