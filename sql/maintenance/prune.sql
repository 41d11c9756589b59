-- Deletes what is over: workers that were not seen for an hour, unless no worker is alive (over HTTP: for five minutes,
-- in any case), flags that expired a minute ago or were not set for an hour, places of the low-water marks that have no
-- message, waiters whose time is over, steps, log lines and lists of predecessors whose message is gone, keys that are
-- free or not throttled any more, pauses of channels that are over, jobs of bulk publishing and what they left, cursors
-- of earlier claims, expired sessions and stored answers, old batches. It also removes from rates what an older,
-- stricter policy charged.
--
-- Result: how many rows.
-- Errors: none.
-- Locks: the rows it deletes or changes.
-- Called by: tick.
CREATE OR REPLACE FUNCTION messages.prune()
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_did bigint;
  v_all bigint := 0;
BEGIN
  -- Logical replication leaves sequences behind; who is armed must be heard of all the same, and what policies say.
  PERFORM messages.raise_armed_until(max(s.armed_until))
  FROM messages.sleeper AS s
  HAVING extract(epoch FROM max(s.armed_until)) > pg_sequence_last_value('messages.armed_until');
  -- All of them: this is written by a caller that does not wait for those that change a topic. clear_policy_bits takes
  -- back what is too much.
  PERFORM setval(p.sequence, 9223372036854775807)
  FROM (VALUES
    ('messages.policy_topic_bits'::regclass, messages.policy_topic_bits()),
    ('messages.always_topic_bits', messages.always_topic_bits())
  ) AS p (sequence, has)
  WHERE p.has & ~coalesce(pg_sequence_last_value(p.sequence), 0) <> 0;
  IF pg_sequence_last_value('messages.awaited_flag') = 1
    AND (EXISTS (SELECT FROM messages.blocked_message) OR EXISTS (SELECT FROM messages.step)) THEN
    PERFORM messages.raise_awaited_flag();
  END IF;
  v_all := v_all + messages.prune_orphans();
  v_all := v_all + messages.prune_waiters();
  v_all := v_all + messages.prune_keys();
  v_all := v_all + messages.prune_throttles();
  PERFORM messages.clear_policy_bits();
  v_all := v_all + messages.prune_pauses();
  v_all := v_all + messages.prune_rates();
  v_all := v_all + messages.prune_mutexes();
  v_all := v_all + messages.clamp_rates();
  v_all := v_all + messages.prune_jobs();
  v_all := v_all + messages.prune_claim_cursors();
  v_all := v_all + messages.prune_web();
  v_all := v_all + messages.prune_batches();
  -- A locked row is left: its worker cannot update it, and may be alive; and the tick waits for no session.
  DELETE FROM messages.worker AS w
  WHERE w.name = ANY (ARRAY(
    SELECT o.name FROM messages.worker AS o
    WHERE o.seen_at < clock_timestamp() - CASE o.kind WHEN 'http' THEN interval '5 minutes' ELSE interval '1 hour' END
      AND (o.kind = 'http' OR EXISTS (SELECT FROM messages.worker_state AS l WHERE l.alive))
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_did = ROW_COUNT;
  v_all := v_all + v_did;
  DELETE FROM messages.sleeper AS s
  WHERE (s.armed_until < clock_timestamp() - interval '1 minute' AND s.armed_until > 'epoch')
     -- A worker that died awake left a row that every publish would read without end.
     OR s.next_look_at < clock_timestamp() - interval '1 hour'
     -- Such rows were written before arm had a bound.
     OR s.armed_until > clock_timestamp() + interval '5 hours';
  GET DIAGNOSTICS v_did = ROW_COUNT;
  v_all := v_all + v_did;
  DELETE FROM messages.low_water AS w
  WHERE w.at IS NULL AND random() < 0.01
    AND NOT EXISTS (
      SELECT FROM messages.message AS m
      WHERE m.topic = w.topic AND m.priority = w.priority AND m.claim_id IS NULL AND m.channel IS NULL)
    AND NOT EXISTS (
      SELECT FROM messages.message AS m
      WHERE w.priority = -1 AND m.topic = w.topic AND m.claim_id IS NULL AND m.channel IS NOT NULL);
  GET DIAGNOSTICS v_did = ROW_COUNT;
  PERFORM messages.lower_armed_until();
  RETURN v_all + v_did;
END
$$;
