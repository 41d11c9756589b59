-- Claim from one topic, the messages with a channel: once round the channels from p_after, a small quantum of each.
-- Called by: messages.claim. Locks and result: as messages.take, in the order of the walk.
CREATE OR REPLACE FUNCTION messages.claim_channels(
  p_claim_id bigint, p_worker text, p_now timestamptz, p_topic text, p_after text, p_limit integer, p_lock_for interval
)
RETURNS SETOF messages.claimed
LANGUAGE plpgsql
AS $$
DECLARE
  v_quantum  integer  := greatest(1, p_limit / 8);
  v_left     integer  := p_limit;
  v_took     integer;
  v_wrapped  boolean  := p_after IS NULL;
  v_next     record;
BEGIN
  v_next := messages.next_channel(p_topic, coalesce(p_after, ''), 9::smallint, p_now);
  LOOP
    IF v_next.channel IS NULL AND NOT v_wrapped THEN
      v_wrapped := true;
      v_next := messages.next_channel(p_topic, '', 9::smallint, p_now);
    END IF;
    EXIT WHEN v_next.channel IS NULL OR v_left <= 0 OR current_setting('messages.bytes_left')::bigint <= 0
      OR (v_wrapped AND v_next.channel > p_after COLLATE "C");
    RETURN QUERY SELECT * FROM messages.take(
      p_claim_id, p_worker, p_now, p_topic, v_next.channel, v_next.priority, NULL, least(v_quantum, v_left), p_lock_for);
    GET DIAGNOSTICS v_took = ROW_COUNT;
    v_left := v_left - v_took;
    v_next := messages.next_channel(p_topic, v_next.channel, v_next.priority, p_now);
  END LOOP;
END
$$;
