-- Save where a claim without a given start ended, so that the next one continues there.
-- Called by: claim, pick_with_channel. Locks: nothing that another claim waits for. p_last: what read_claim_cursor
-- said.
CREATE OR REPLACE FUNCTION messages.save_claim_cursor(p_walk text, p_at text, p_last text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  IF p_at IS DISTINCT FROM p_last THEN
    INSERT INTO messages.claim_cursor (walk, at) VALUES (p_walk, p_at);
  END IF;
END
$$;
