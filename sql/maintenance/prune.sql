-- Forget what is over: workers that have not been seen for an hour (over HTTP: for five minutes), sleepers whose flag ran out a minute ago or that have not armed for
-- an hour, places that have no message, waiters whose time is over, steps of which no message is left, keys that are free again, pauses of channels that are over, jobs
-- of bulk publishing and what they left behind, where earlier claims ended, sessions that are over and answers that nobody asks for again.
-- Called by: tick. Locks: the rows it deletes. Result: how many rows.
CREATE OR REPLACE FUNCTION messages.prune()
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
  v_did bigint;
  v_all bigint := 0;
BEGIN
  -- Logical replication leaves sequences behind; who is armed must be heard of all the same, and what policies say.
  PERFORM messages.raise_armed(max(s.armed_until))
  FROM messages.sleeper AS s
  HAVING extract(epoch FROM max(s.armed_until)) > pg_sequence_last_value('messages.armed');
  IF NOT messages.is_policed() AND (
       EXISTS (SELECT FROM messages.topic AS t WHERE messages.needs_mark(t)) OR EXISTS (SELECT FROM messages.subscription)) THEN
    PERFORM messages.mark_policed();
  END IF;
  -- All of them: this is told by who does not wait for those that change a topic. unmark_policed takes back what is too much.
  IF messages.policed_topics() & ~coalesce(pg_sequence_last_value('messages.policed_topics'), 0) <> 0 THEN
    PERFORM setval('messages.policed_topics', 9223372036854775807);
  END IF;
  IF pg_sequence_last_value('messages.awaited') = 1 AND (EXISTS (SELECT FROM messages.parked) OR EXISTS (SELECT FROM messages.step)) THEN
    PERFORM messages.mark_awaited();
  END IF;
  v_all := v_all + messages.prune_steps();
  v_all := v_all + messages.forget_waiters();
  v_all := v_all + messages.sweep_keys();
  PERFORM messages.unmark_policed();
  v_all := v_all + messages.prune_channels();
  v_all := v_all + messages.prune_rates();
  v_all := v_all + messages.prune_mutexes();
  v_all := v_all + messages.ease_rates();
  v_all := v_all + messages.prune_jobs();
  v_all := v_all + messages.prune_cursors();
  v_all := v_all + messages.prune_web();
  -- A row that somebody holds is left: its worker cannot sign, and may live; and the tick waits for nobody.
  DELETE FROM messages.worker AS w
  WHERE w.name = ANY (ARRAY(
    SELECT o.name FROM messages.worker AS o
    WHERE o.seen_at < clock_timestamp() - CASE o.kind WHEN 'http' THEN interval '5 minutes' ELSE interval '1 hour' END
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_did = ROW_COUNT;
  v_all := v_all + v_did;
  DELETE FROM messages.sleeper AS s
  WHERE (s.armed_until < clock_timestamp() - interval '1 minute' AND s.armed_until > 'epoch')
     -- Who died awake left a row that every publish would read for ever.
     OR s.next_look_at < clock_timestamp() - interval '1 hour'
     -- Of a time before arm had a bound; the row '*' stands for listeners that never look.
     OR (s.worker <> '*' AND s.armed_until > clock_timestamp() + interval '5 hours');
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
  PERFORM messages.lower_armed();
  RETURN v_all + v_did;
END
$$;
