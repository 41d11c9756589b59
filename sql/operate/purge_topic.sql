-- Delete the waiting messages of a topic, a batch per call, so that a caller can do so in short transactions: until a call deletes nothing.
-- Called by: operators. Nothing is kept, as with delete. Running messages, and rows locked by another transaction, are not touched.
-- p_upto: nothing with a higher id, which was published later; NULL = all. Dead messages are of the archive: see purge_archive.
-- Locks: the rows. Result: how many were deleted.
CREATE OR REPLACE FUNCTION messages.purge_topic(p_topic text, p_limit integer DEFAULT 1000, p_upto bigint DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids   bigint[];
  v_count bigint;
BEGIN
  IF p_topic IS NULL THEN
    RAISE EXCEPTION 'a purge needs a topic' USING ERRCODE = '22004';
  END IF;
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'limit of a purge is %', coalesce(p_limit::text, 'NULL') USING ERRCODE = '22023', HINT = 'use 1 to 10000';
  END IF;
  SELECT array_agg(m.id ORDER BY m.id)
  INTO v_ids
  FROM (
    SELECT m.id FROM messages.message AS m
    WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.id <= coalesce(p_upto, 9223372036854775807)
    LIMIT p_limit
    FOR UPDATE SKIP LOCKED) AS m;
  IF v_ids IS NULL THEN
    RETURN 0;
  END IF;
  v_count := cardinality(messages.erase(v_ids));
  PERFORM messages.audit_action('purge_topic', p_topic, NULL, jsonb_build_object('count', v_count));
  RETURN v_count;
END
$$;
