-- Deletes the waiting messages of a topic, as `messages.delete` does: `p_limit` messages a call (10,000 at most), so
-- call it until it returns 0. `p_upto`: messages with a higher id, which were published later, are kept. Dead messages
-- belong to the archive: use `messages.purge_archive`.
--
-- Result: how many were deleted.
-- Errors: 22004 without a topic; 22023 for an invalid limit.
-- Locks: the rows. Messages that are running, or that another transaction has locked, are not touched.
-- Called by: operators.
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
    RAISE EXCEPTION 'limit of a purge is %', coalesce(p_limit::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 to 10000';
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
