-- Counts the messages that a claim could consider now: those that are neither locked, nor due later, nor expired. A
-- limit or a pause may hold some of them back.
--
-- Arguments: `p_topics`: names and patterns, as for `messages.claim`.
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
  v_now    timestamptz := messages.now();
  v_topics text[]      := CASE
    WHEN messages.topic_patterns(p_topics) IS NULL THEN p_topics ELSE messages.waiting_topics('', 1000000, p_topics)
  END;
  v_count  bigint;
BEGIN
  SELECT
    (SELECT count(*) FROM messages.message AS m
     WHERE m.topic = ANY (v_topics) AND m.claim_id IS NULL AND m.channel IS NULL
       AND m.available_at <= v_now AND (m.expires_at IS NULL OR m.expires_at > v_now))
    + (SELECT count(*) FROM messages.message AS m
       WHERE m.topic = ANY (v_topics) AND m.claim_id IS NULL AND m.channel IS NOT NULL
         AND m.available_at <= v_now AND (m.expires_at IS NULL OR m.expires_at > v_now))
  INTO v_count;
  RETURN v_count;
END
$$;
