-- Lock the next ready rows of one topic that have no channel: by priority, then the longest available.
-- Called by: claim. p_marks: read from the low-water marks on, else from the left edge. Locks and result: as pick.
CREATE OR REPLACE FUNCTION messages.pick_without_channel(
  p_policy messages.policy, p_now timestamptz, p_limit integer, p_bytes bigint, p_marks boolean
)
RETURNS messages.picked
LANGUAGE plpgsql
AS $$
DECLARE
  v_all    messages.picked := row('{}', 0, NULL, NULL, false, NULL);
  v_picked messages.picked;
  v_next   record;
BEGIN
  IF p_limit <= 0 OR p_bytes <= 0 THEN
    RETURN v_all;
  END IF;
  SELECT n.* INTO v_next FROM messages.next_priority(p_policy.topic, (-1)::smallint, p_marks) AS n;
  WHILE v_next.priority IS NOT NULL LOOP
    v_picked := messages.pick_priority(
      p_policy, p_now, v_next.priority, v_next.low, p_limit - cardinality(v_all.rows), p_bytes - v_all.bytes);
    -- A place that is read from a mark is in the directory.
    IF v_picked.rows IS NOT NULL AND v_next.low = '-infinity' THEN
      PERFORM messages.add_low_water(p_policy.topic, v_next.priority);
    END IF;
    v_all := row(
      v_all.rows || v_picked.rows, v_all.bytes + coalesce(v_picked.bytes, 0),
      v_all.over || v_picked.over, v_all.expired || v_picked.expired, false, NULL);
    EXIT WHEN cardinality(v_all.rows) >= p_limit OR v_all.bytes >= p_bytes;
    SELECT n.* INTO v_next FROM messages.next_priority(p_policy.topic, v_next.priority, p_marks) AS n;
  END LOOP;
  RETURN v_all;
END
$$;
