-- Counts the messages that a claim could consider now: those that are neither locked, nor due later, nor expired. A
-- limit or a pause may hold some of them back.
--
-- Result: how many.
-- Errors: none.
-- Locks: none.
-- Cost: it reads every ready row of these topics.
-- Repeat: it only reads.
-- Called by: consume on Spark, which processes as many messages as there were at its start, and ends.
CREATE OR REPLACE FUNCTION messages.count_ready(p_topics text[])
RETURNS bigint
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_now   timestamptz := messages.now();
  v_count bigint;
BEGIN
  SELECT
    (SELECT count(*) FROM messages.message AS m
     WHERE m.topic = ANY (p_topics) AND m.claim_id IS NULL AND m.channel IS NULL
       AND m.available_at <= v_now AND (m.expires_at IS NULL OR m.expires_at > v_now))
    + (SELECT count(*) FROM messages.message AS m
       WHERE m.topic = ANY (p_topics) AND m.claim_id IS NULL AND m.channel IS NOT NULL
         AND m.available_at <= v_now AND (m.expires_at IS NULL OR m.expires_at > v_now))
  INTO v_count;
  RETURN v_count;
END
$$;
