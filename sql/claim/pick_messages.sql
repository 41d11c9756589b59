-- Lock the next ready rows of one topic, with and without a channel.
-- Called by: claim. Odd claims begin with the channels, even ones without: neither kind starves the other.
-- Locks and result: as pick_without_channel and pick_with_channel.
CREATE OR REPLACE FUNCTION messages.pick_messages(
  p_policy messages.policy, p_now timestamptz, p_claim_id bigint, p_after text, p_limit integer, p_bytes bigint
)
RETURNS messages.picked
LANGUAGE plpgsql
AS $$
DECLARE
  -- Some claims read from the left edge, so that no row can stay below a mark for ever, anyone who ticks or does not.
  v_marks  boolean := p_claim_id % 64 <> 0;
  v_first  messages.picked;
  v_second messages.picked;
BEGIN
  IF p_claim_id % 2 = 1 THEN
    v_first := messages.pick_with_channel(p_policy, p_now, p_after, p_limit, p_bytes, v_marks);
    v_second := messages.pick_without_channel(p_policy, p_now, p_limit - cardinality(v_first.rows), p_bytes - v_first.bytes, v_marks);
  ELSE
    v_first := messages.pick_without_channel(p_policy, p_now, p_limit, p_bytes, v_marks);
    v_second := messages.pick_with_channel(p_policy, p_now, p_after, p_limit - cardinality(v_first.rows), p_bytes - v_first.bytes, v_marks);
  END IF;
  RETURN row(
    v_first.rows || v_second.rows, v_first.bytes + v_second.bytes,
    v_first.over || v_second.over, v_first.expired || v_second.expired,
    v_first.held_back OR v_second.held_back, coalesce(v_first.look_again_at, v_second.look_again_at))::messages.picked;
END
$$;
