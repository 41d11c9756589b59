-- End what a claim met in a topic and must not hand out: messages whose attempts are used up, and messages whose time to live is over.
-- Called by: claim, which may hold limited topics that others wait for. Locks: the rows, which the claim holds already.
CREATE OR REPLACE FUNCTION messages.end_picked(p_picked messages.picked, p_worker text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  IF num_nonnulls(p_picked.over, p_picked.expired) = 0 THEN
    RETURN;
  END IF;
  IF p_picked.over IS NOT NULL THEN
    PERFORM messages.archive(
      p_picked.over, array_fill(NULL::bigint, ARRAY[cardinality(p_picked.over)]), 'failed',
      array_fill('max_attempts: all attempts were used up before this claim'::text, ARRAY[cardinality(p_picked.over)]),
      NULL, p_worker, true);
  END IF;
  IF p_picked.expired IS NOT NULL THEN
    PERFORM messages.end_expired(p_picked.expired);
  END IF;
END
$$;
