-- Claim from one topic, the messages without a channel: by priority, then the longest available.
-- Called by: messages.claim. Locks and result: as messages.take.
CREATE OR REPLACE FUNCTION messages.claim_topic(
  p_claim_id bigint, p_worker text, p_now timestamptz, p_topic text, p_limit integer, p_lock_for interval
)
RETURNS SETOF messages.claimed
LANGUAGE plpgsql
AS $$
DECLARE
  -- Some claims read from the left edge, so that no row can stay below a mark for ever, whoever ticks or does not.
  v_marks boolean := p_claim_id % 64 <> 0;
  v_left  integer := p_limit;
  v_took  integer;
  v_next  record;
BEGIN
  v_next := messages.next_priority(p_topic, (-1)::smallint, v_marks);
  WHILE v_next.priority IS NOT NULL AND v_left > 0 AND current_setting('messages.bytes_left')::bigint > 0 LOOP
    RETURN QUERY SELECT * FROM messages.take(
      p_claim_id, p_worker, p_now, p_topic, NULL, v_next.priority, v_next.low, v_left, p_lock_for);
    GET DIAGNOSTICS v_took = ROW_COUNT;
    v_left := v_left - v_took;
    v_next := messages.next_priority(p_topic, v_next.priority, v_marks);
  END LOOP;
END
$$;
