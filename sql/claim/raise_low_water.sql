-- Raises the marks from which claims read, in the places where finding the first message takes longer than `p_slow`;
-- see [the decision](../decisions/0001-low-water-on-the-server.md). Daemons also call it about once a second while
-- messages are processed.
--
-- Result: how many places have a mark; 0 also if another call is running or the last one was too recent.
-- Errors: none.
-- Locks: the row of `messages.low_water_mark`, then rows of `messages.low_water`; it waits for neither.
-- Called by: tick, and by daemons about once a second.
-- Inside: The channels of a topic have one mark together, as the place with the priority -1 (see channel_low_water). A
-- place gets a mark only while finding its first ready message takes long; a place without dead entries needs none. A
-- mark may only state what no running transaction can contradict. Times are assigned before their rows are visible, so
-- a time S is safe only once every transaction that ran when S was taken has ended: pg_snapshot_xmin >= an xid of our
-- own, taken then. (An ungated mark left messages that committed late behind it.) S lies 100 ms in the past, for the
-- moment between the evaluation of available_at and the xid of its row. A run moves each mark on from where it is. What
-- is published with an older available_at lies below its mark until a run reads from the left edge again, which lowers
-- or removes the mark and notifies. That takes long behind a held snapshot (0.3 s after a million messages), so the
-- other runs do not: with marks as old as that, each claim would walk over all that was processed since. The next run
-- of each kind waits 20 times as long as this one took: at most 5 % of one core for each.
CREATE OR REPLACE FUNCTION messages.raise_low_water(p_slow interval DEFAULT '0.5 ms')
RETURNS integer
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_began timestamptz := clock_timestamp();
  v_mark  messages.low_water_mark;
  v_place record;
  v_left  boolean;
  v_from  timestamptz;
  v_looks timestamptz;
  v_first timestamptz;
  v_at    timestamptz;
  v_marks integer := 0;
BEGIN
  SELECT k.* INTO v_mark FROM messages.low_water_mark AS k WHERE k.next_run_at <= v_began FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  IF pg_snapshot_xmin(pg_current_snapshot()) >= v_mark.xid THEN
    v_mark.safe_at := v_mark.at;
    v_mark.at := v_began - interval '100 ms';
    v_mark.xid := pg_current_xact_id();
  END IF;
  v_left := v_mark.left_edge_at <= v_began;

  FOR v_place IN SELECT w.topic, w.priority, w.at FROM messages.low_water AS w ORDER BY w.topic, w.priority LOOP
    v_from := CASE WHEN v_left THEN '-infinity' ELSE coalesce(v_place.at, '-infinity') END;
    v_looks := clock_timestamp();
    IF v_place.priority = -1 THEN
      v_first := (
        SELECT m.available_at FROM messages.message AS m
        WHERE m.topic = v_place.topic AND m.claim_id IS NULL AND m.channel IS NOT NULL AND m.available_at >= v_from
        ORDER BY m.available_at LIMIT 1);
    ELSE
      v_first := (
        SELECT m.available_at FROM messages.message AS m
        WHERE m.topic = v_place.topic AND m.priority = v_place.priority AND m.claim_id IS NULL AND m.channel IS NULL
          AND m.available_at >= v_from
        ORDER BY m.available_at LIMIT 1);
    END IF;
    v_at := CASE
      WHEN v_from > '-infinity' OR clock_timestamp() - v_looks >= p_slow THEN least(v_mark.safe_at, v_first)
    END;
    v_marks := v_marks + (v_at IS NOT NULL)::integer;
    IF v_at IS DISTINCT FROM v_place.at THEN
      -- The mark stays if a settle has lowered it since, or is about to: it would hide what was put back.
      UPDATE messages.low_water AS w SET at = v_at
      WHERE w.ctid = (
        SELECT o.ctid FROM messages.low_water AS o
        WHERE o.topic = v_place.topic AND o.priority = v_place.priority AND o.at IS NOT DISTINCT FROM v_place.at
        FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    -- Also where the mark is removed: who looked before did not see what lay below it.
    IF FOUND AND v_first < v_place.at THEN
      PERFORM messages.notify_topics(ARRAY[v_place.topic], v_first);
    END IF;
  END LOOP;

  UPDATE messages.low_water_mark AS k
  SET safe_at = v_mark.safe_at, at = v_mark.at, xid = v_mark.xid,
      next_run_at = CASE
        WHEN v_left THEN clock_timestamp()
        ELSE clock_timestamp() + 20 * (clock_timestamp() - v_began)
      END,
      left_edge_at = CASE
        WHEN v_left THEN clock_timestamp() + 20 * (clock_timestamp() - v_began)
        ELSE k.left_edge_at
      END;
  RETURN v_marks;
END
$$;
