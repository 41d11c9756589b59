-- Archive what a claim found in a topic and must not hand out: messages without attempts left, messages that are too
-- large, and expired messages.
-- Called by: claim, which may hold limited topics that others wait for. Locks: the rows, which the claim holds already.
CREATE OR REPLACE FUNCTION messages.archive_unclaimable(p_picked messages.picked, p_worker text)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_large  bigint[];
  v_errors text[];
BEGIN
  IF num_nonnulls(p_picked.over, p_picked.expired) = 0 THEN
    RETURN;
  END IF;
  IF p_picked.over IS NOT NULL THEN
    SELECT array_agg(m.id),
           array_agg(format('too large: %s bytes as text, 33554432 at most are handed out', m.content_bytes))
    INTO v_large, v_errors
    FROM messages.message AS m WHERE m.id = ANY (p_picked.over) AND m.content_bytes > 33554432;
    IF v_large IS NOT NULL THEN
      PERFORM messages.archive(v_large, NULL, 'rejected', v_errors, NULL, p_worker, true);
    END IF;
    v_errors := array_fill(
      'max_attempts: all attempts were used up before this claim'::text, ARRAY[cardinality(p_picked.over)]);
    PERFORM messages.archive(p_picked.over, NULL, 'failed', v_errors, NULL, p_worker, true);
  END IF;
  IF p_picked.expired IS NOT NULL THEN
    PERFORM messages.archive_expired(p_picked.expired);
  END IF;
END
$$;
