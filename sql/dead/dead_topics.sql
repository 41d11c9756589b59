-- Returns the topics that have dead messages.
--
-- Errors: none.
-- Locks: none.
-- Cost: a loose scan of the index, which never reads all of these messages.
-- Called by: find_dead, dead_groups, `pgrouse dead list`.
CREATE OR REPLACE FUNCTION messages.dead_topics()
RETURNS SETOF text
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_topic text := '';
BEGIN
  LOOP
    SELECT a.topic INTO v_topic
    FROM messages.message_archive AS a
    WHERE a.result NOT IN ('success', 'cancelled') AND a.topic > v_topic COLLATE "C"
    ORDER BY a.topic
    LIMIT 1;
    EXIT WHEN v_topic IS NULL;
    RETURN NEXT v_topic;
  END LOOP;
END
$$;
