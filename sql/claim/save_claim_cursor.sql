-- Note where a claim ended that did not say where it begins, so that the next one begins behind it.
-- Called by: claim, pick_channels. Locks: nothing that another claim waits for. p_last: what claim_cursor said.
CREATE OR REPLACE FUNCTION messages.note_cursor(p_walk text, p_at text, p_last text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  IF p_at IS DISTINCT FROM p_last THEN
    INSERT INTO messages.claim_cursor (walk, at) VALUES (p_walk, p_at);
  END IF;
END
$$;
