-- Count what a claim could look at now: neither locked, nor due later, nor expired. Limits and pauses may hold some of it back.
-- Called by: the stream reader of Spark, which works as many messages as there were when it began, and ends. Locks: nothing.
-- Every ready row of the topics is looked at, by the indexes that claims read.
CREATE OR REPLACE FUNCTION messages.count_ready(p_topics text[])
RETURNS bigint
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
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
