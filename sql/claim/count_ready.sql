-- Count the messages that a claim could consider now: not locked, due, and not expired. Limits and pauses may still hold some back.
-- Called by: consume on Spark, which processes as many messages as there were at its start, and ends. Locks: nothing.
-- It reads every ready row of the topics, by the indexes that claims use.
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
